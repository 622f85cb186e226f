from rlds.auditing.meaning import ElementMeaning as ElementMeaning
from rlds.auditing.meaning import meanings as meanings
from rlds.auditing.vectors import VectorMeaning as VectorMeaning
from rlds.auditing.vectors import vector_meanings as vector_meanings

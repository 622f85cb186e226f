"""The model of data: fields, nests, columns; names, texts and JSON values of it; errors."""

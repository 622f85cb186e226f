// Scores of search results: pages and headings with the words of the query come first.

const words = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().match(/[\w-]+/g) ?? [];
// Pages of the guide come before notebooks. "resume" also finds "Resuming", "merge" finds "Merging".
const stems = words.map((word) => word.replace(/(e|es|s|ing)$/, ""));

var Scorer = {
  score: ([page, title, _anchor, _description, score, _file, kind]) => {
    const isHeading = kind !== "object" && stems.length > 0 && stems.every((stem) => title.toLowerCase().includes(stem));
    return score + (isHeading ? 100 : 0) - (page.startsWith("notebooks/") ? 50 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

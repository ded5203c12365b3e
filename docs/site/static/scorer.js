// How Sphinx's search ranks: first a title that is about what was asked, then the pages that the
// term names and terms in bold (terms() in render.py, 100 points), then what a text says.
var Scorer = {
  objNameMatch: 11, objPartialMatch: 6, objPrio: {}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
  score: ([page, , anchor, , points, , kind]) =>
    points + (kind === "title" ? 100 : kind === "index" && !anchor ? 50 : /\/index$/.test(page) ? 1 : 0),
};

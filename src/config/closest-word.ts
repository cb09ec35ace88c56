/**
 * Finds the candidate for "did you mean …?" after a typing mistake.
 */

/** The closest candidate within one edit (words under 5 characters) or two, ignoring case, hyphens and underscores. */
export function closest(word: string, candidates: Iterable<string>): string | undefined {
  const editsMax = word.length < 5 ? 1 : 2;
  let best: { candidate: string; edits: number } | undefined;
  for (const candidate of candidates) {
    const edits = countEdits(plain(word), plain(candidate));
    if (edits <= editsMax && (best === undefined || edits < best.edits)) best = { candidate, edits };
  }
  return best?.candidate;
}

function plain(word: string): string {
  return word.toLowerCase().replaceAll(/[_-]/g, '');
}

/** Edit distance of Damerau and Levenshtein (optimal string alignment): swapping two neighbors is one edit. */
function countEdits(from: string, to: string): number {
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let row = 1; row <= from.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= to.length; column += 1) {
      const isSame = from[row - 1] === to[column - 1];
      const isSwap =
        row > 1 && column > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      current[column] = Math.min(
        (previous[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (previous[column - 1] ?? 0) + (isSame ? 0 : 1),
        isSwap ? (beforePrevious[column - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    [beforePrevious, previous] = [previous, current];
  }
  return previous[to.length] ?? 0;
}

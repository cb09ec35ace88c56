/** The pages of a list, of which `read` returns the one with up to `limit` rows after a row. Ends with a page that is not full. */
export async function* pagesOf<Row>(
  limit: number,
  read: (after: Row | undefined) => Promise<Row[]>,
): AsyncGenerator<Row[]> {
  for (let after: Row | undefined; ; ) {
    const page = await read(after);
    yield page;
    if (page.length < limit) return;
    after = page.at(-1);
  }
}

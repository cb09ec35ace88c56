/**
 * The table of docs/reference/caching.md. The times are read from the OpenAPI document, which the routes make.
 */
import { renderOpenApi } from '../../../src/app/render-openapi.ts';
import { code, markdownTable } from './table.ts';

/** @throws Error if the document names no times */
export async function renderCacheTimes(): Promise<string> {
  const document: { paths: Record<string, { get?: { description?: string } }> } = JSON.parse(
    await renderOpenApi(),
  );
  const rows = Object.entries(document.paths).flatMap(([path, { get }]) => {
    const [, fresh] = /Cached for (\d+) seconds\./.exec(get?.description ?? '') ?? [];
    const [, stale] = /For another (\d+) seconds/.exec(get?.description ?? '') ?? [];
    if (fresh === undefined) return [];
    const shown = path.replaceAll(/\{(\w+)\}/g, '<$1>');
    return [[code(shown), `${fresh} s`, stale === undefined ? '–' : `${stale} s`]];
  });
  if (rows.length === 0) throw new Error('no path of the OpenAPI document is cached');
  return markdownTable(['Path', '`max-age`', '`stale-while-revalidate`'], rows);
}

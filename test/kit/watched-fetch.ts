/**
 * A `fetch` that fails when a service answers what its OpenAPI document does not say: installed once, for all services that
 * a test starts.
 */
import { renderOpenApi } from '../../src/app/render-openapi.ts';
import { createDescription, type Describes } from './described.ts';

const origins = new Set<string>();
let describes: Describes | undefined;

/**
 * From now on answers of this origin are looked at, until what it returns is called: another server may have the port then.
 * Streams of unknown length are not read ahead.
 */
export async function watchAnswers(origin: string): Promise<() => void> {
  origins.add(origin);
  await install();
  return () => origins.delete(origin);
}

async function install(): Promise<void> {
  if (describes !== undefined) return;
  const check = createDescription(await renderOpenApi());
  describes = check;
  const plainFetch = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const response = await plainFetch(input, init);
    const { origin: asked, pathname, search } = new URL(input instanceof Request ? input.url : input);
    if (!origins.has(asked)) return response;
    const isWhole = response.headers.has('content-length');
    check({
      method: (init?.method ?? 'GET').toUpperCase(),
      url: `${pathname}${search}`,
      status: response.status,
      contentType: response.headers.get('content-type') ?? undefined,
      text: isWhole ? await response.clone().text() : undefined,
    });
    return response;
  };
}

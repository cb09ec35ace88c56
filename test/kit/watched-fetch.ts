/**
 * Wraps `fetch` so that a response fails the test when it doesn't match the service's OpenAPI document. One wrapper serves all
 * services that a test starts.
 */
import { renderOpenApi } from '../../src/app/render-openapi.ts';
import { createDescription, type Describes } from './described.ts';

const origins = new Set<string>();
let describes: Describes | undefined;

/**
 * Checks all responses of this origin from now on, until the returned function is called, because another server may get the
 * port later. Does not read streams of unknown length ahead.
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

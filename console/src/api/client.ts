/**
 * Requests to the HTTP API. Each is an operation of the OpenAPI document, so the compiler knows its parameters and its answer.
 */
import { signal } from '@preact/signals';
import { noteServerTime, serverNow } from '../state/clock.ts';
import { scope, session, signOut, suspension } from '../state/session.ts';
import { texts } from '../texts.ts';
import type { Body, Data, Exact, Operation, Query } from './types.ts';

/** Longer than the service waits for anything. */
const REQUEST_MS_MAX = 35_000;

export type Problem = { path: string; message: string };

/** What must change, and in which field. */
export const sentenceOf = ({ path, message }: Problem): string => `${path.slice(1)} ${message}`.trim();

/** An answer that is an error, or no answer at all (status 0). Its message can be shown. */
export class ApiError extends Error {
  readonly status: number;
  readonly problems: readonly Problem[];
  constructor(status: number, message: string, problems: readonly Problem[] = []) {
    super(message);
    this.status = status;
    this.problems = problems;
  }

  /** The message and all problems with their fields, for a place that has no fields. */
  get whole(): string {
    return [this.message, ...this.problems.map(sentenceOf)].join(': ');
  }
}

export type CallOptions<O extends Operation> = {
  /** Values for `{id}` and its like in the path. */
  path?: Record<string, string | number>;
  query?: Query<O>;
  body?: Body<O>;
  signal?: AbortSignal;
  headers?: Record<string, string>;
  /** The watcher of this request, when the operator acts for one that isn't chosen. */
  watcherId?: number | undefined;
};

/** A page of a list. `next` is the cursor of the next one. */
export type Page<T> = { data: T; next: string | undefined };

/** Since when no request has got an answer. */
export const unreachableSince = signal<number | undefined>(undefined);

/** What is wrong with the service, by its status. An answer of 503 doesn't say it. */
export const serviceProblem = signal<string | undefined>(undefined);

/** Operations that the operator API has for all watchers together. */
const TWINS = /^\w+ \/api\/notifications\/(log|statistics|receivers|attempts)\b(?!.*\/attempts$)/;

/** The data of an answer. @throws ApiError */
export async function call<O extends Operation>(
  operation: O,
  options: CallOptions<O> = {},
): Promise<Data<O>> {
  return (await callPage(operation, options)).data;
}

/** The data of an answer, and the cursor of the next page. @throws ApiError */
export async function callPage<O extends Operation>(
  operation: O,
  options: CallOptions<O> = {},
): Promise<Page<Data<O>>> {
  const response = await send(operation, options);
  const data = unwrap(parse(await readText(response, options)));
  return { data: data as Data<O>, next: cursorOf(response.headers.get('link')) };
}

/** The data of up to `pagesMax` pages, and whether these are all. `load` gets one, from the cursor of the page before. */
export async function loadPages<T>(
  load: (cursor: string | undefined) => Promise<Page<readonly T[]>>,
  pagesMax: number,
): Promise<{ data: T[]; isWhole: boolean }> {
  const all: T[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < pagesMax; page += 1) {
    const { data, next } = await load(cursor);
    all.push(...data);
    if (next === undefined) return { data: all, isWhole: true };
    cursor = next;
  }
  return { data: all, isWhole: false };
}

/** Like `callPage`, with each number as the exact text that the server sent, and the headers of the answer. @throws ApiError */
export async function callExact<O extends Operation>(
  operation: O,
  options: CallOptions<O> = {},
): Promise<Page<Exact<Data<O>>> & { headers: Headers }> {
  const response = await send(operation, options);
  const exact = (_name: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === 'number' ? (context?.source ?? String(value)) : value;
  const data = unwrap(parse(await readText(response, options), exact));
  const { headers } = response;
  return { data: data as Exact<Data<O>>, next: cursorOf(headers.get('link')), headers };
}

/**
 * Sends a request and returns an answer with a status of 2xx. Its body is the caller's to read, within the same time; without
 * `timeoutMs`, for as long as it takes. @throws ApiError
 */
export async function send<O extends Operation>(
  operation: O,
  options: CallOptions<O> = {},
  timeoutMs: number | null = REQUEST_MS_MAX,
): Promise<Response> {
  const [method = 'GET'] = operation.split(' ', 1);
  const signals = [options.signal ?? [], timeoutMs === null ? [] : AbortSignal.timeout(timeoutMs)];
  const { body } = options;
  const headers = headersOf(operation, options);
  const token = headers.authorization;
  const response = await fetch(urlOf(operation, options), {
    method,
    headers,
    ...(body !== undefined &&
      body !== null && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    signal: AbortSignal.any(signals.flat()),
    cache: 'no-store',
    credentials: 'omit',
    redirect: 'error',
  }).catch((error: unknown) => {
    throw options.signal?.aborted === true ? error : unreachable();
  });
  unreachableSince.value = undefined;
  // Other answers may come from a cache, with the time at which they were made.
  if (token !== undefined || operation === 'GET /status') noteServerTime(response.headers.get('date'));
  const error = response.ok ? undefined : await errorOf(response, options);
  // The key of another session is none of this one's business.
  if (token !== undefined && token === tokenHeader()) {
    suspension.value = response.status === 403 ? error?.message : undefined;
    if (response.status === 401)
      signOut(session.value.kind === 'operator' ? texts.signIn.wrongToken : error?.message);
  }
  if (error !== undefined) throw error;
  return response;
}

const RETRY_MS_MIN = 2_000;
const RETRY_MS_MAX = 30_000;

/** The pause before a request is made again that has failed so often in a row; undefined if its error doesn't pass by itself. */
export const retryMsAfter = (error: ApiError, failures: number): number | undefined =>
  error.status === 0 || error.status >= 500
    ? Math.min(RETRY_MS_MIN * 2 ** (failures - 1), RETRY_MS_MAX)
    : undefined;

/** Loads, again and again while errors pass by themselves. `onError` gets each of them. @throws ApiError, or the signal's reason */
export async function loadSurely<T>(
  load: () => Promise<T>,
  signal: AbortSignal,
  onError: (error: ApiError) => void = () => {},
): Promise<T> {
  for (let failures = 1; ; failures += 1)
    try {
      return await load();
    } catch (error) {
      const waitMs = error instanceof ApiError ? retryMsAfter(error, failures) : undefined;
      if (!(error instanceof ApiError) || waitMs === undefined) throw error;
      onError(error);
      await new Promise((resolve) => {
        setTimeout(resolve, waitMs);
        signal.addEventListener('abort', resolve, { once: true });
      });
      signal.throwIfAborted();
    }
}

/** For work of several requests: a check that throws once the session or the chosen watcher is another one. */
export function holdSession(): () => void {
  const whose = scope.peek();
  return () => {
    if (scope.peek() !== whose) throw new ApiError(409, texts.errors.otherSession);
  };
}

/** The address of an operation, with the parameters that are given. */
export function urlOf<O extends Operation>(
  operation: O,
  { path = {}, query }: Pick<CallOptions<O>, 'path' | 'query'> = {},
): string {
  const template = (isForAll(operation) ? operation.replace('/api/notifications/', '/api/admin/') : operation)
    .split(' ')
    .slice(1)
    .join('');
  const filled = template.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(String(path[name] ?? '')).replaceAll(/['!()*]/g, percent),
  );
  const given = Object.entries((query ?? {}) as Record<string, unknown>).filter(
    ([, value]) => value !== undefined && value !== '',
  );
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return search === '' ? filled : `${filled}?${search}`;
}

/** A shell would read these characters, which an address may have as they are. */
const percent = (character: string): string => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;

/** The same request as a command, with the key left to a variable. */
export function curlOf<O extends Operation>(operation: O, options: CallOptions<O> = {}): string {
  const [method] = operation.split(' ', 1);
  const headers = headersOf(operation, options);
  const words = [
    `curl -sS${method === 'GET' ? '' : ` -X ${method}`} '${location.origin}${urlOf(operation, options)}'`,
  ];
  for (const [name, value] of Object.entries(headers)) {
    const isSecret = name === 'authorization';
    words.push(
      isSecret
        ? `-H "${name}: Bearer $${isAdminPath(operation) ? 'ADMIN_TOKEN' : 'KEY'}"`
        : `-H '${name}: ${value}'`,
    );
  }
  if (options.body !== undefined && options.body !== null)
    words.push(`-d '${JSON.stringify(options.body).replaceAll("'", "'\\''")}'`);
  return words.join(' \\\n  ');
}

/** Headers of a request: the key, the operator's chosen watcher, the content type. */
export function headersOf<O extends Operation>(
  operation: O,
  { body, headers = {}, watcherId }: CallOptions<O> = {},
): Record<string, string> {
  const { value } = session;
  const isKeyed = operation.includes('/api/notifications/') || operation.includes('/api/admin/');
  const watcher = watcherId ?? (value.kind === 'operator' ? value.watcher?.id : undefined);
  const needsWatcher = operation.includes('/api/notifications/') && !isForAll(operation);
  const token = tokenHeader();
  return {
    ...(isKeyed && token !== undefined && { authorization: token }),
    ...(value.kind === 'operator' &&
      needsWatcher &&
      watcher !== undefined && { 'chainbell-watcher': String(watcher) }),
    ...(body !== undefined &&
      body !== null &&
      typeof body !== 'string' && { 'content-type': 'application/json' }),
    ...headers,
  };
}

function isForAll(operation: string): boolean {
  const { value } = session;
  return value.kind === 'operator' && value.watcher === undefined && TWINS.test(operation);
}

const isAdminPath = (operation: string): boolean =>
  session.value.kind === 'operator' || operation.includes('/api/admin/');

function tokenHeader(): string | undefined {
  return session.value.kind === 'visitor' ? undefined : `Bearer ${session.value.token}`;
}

function unreachable(): ApiError {
  unreachableSince.value ??= serverNow();
  return new ApiError(0, texts.errors.unreachable);
}

async function readText(response: Response, { signal: aborts }: { signal?: AbortSignal }): Promise<string> {
  return response.text().catch((error: unknown) => {
    throw aborts?.aborted === true ? error : unreachable();
  });
}

/** A proxy may answer with another page, even with a status of 200. */
function parse(text: string, reviver?: Parameters<typeof JSON.parse>[1]): unknown {
  try {
    return JSON.parse(text, reviver);
  } catch {
    throw new ApiError(0, texts.errors.notJson);
  }
}

/** The error of an answer in the form of the API, or of a proxy before it. */
async function errorOf(response: Response, { signal: aborts }: { signal?: AbortSignal }): Promise<ApiError> {
  const text = await response.text().catch((error: unknown) => {
    if (aborts?.aborted === true) throw error;
    return '';
  });
  try {
    const { statusMessage, errors, code }: Record<string, unknown> = { ...Object(JSON.parse(text)) };
    // These two say no more than their status does.
    const known =
      statusMessage === 'Service Unavailable'
        ? texts.errors.unavailable(serviceProblem.peek())
        : statusMessage === 'Internal Server Error'
          ? texts.errors.failed
          : texts.errors.refusals[String(code)];
    const message =
      known ?? (typeof statusMessage === 'string' ? statusMessage : texts.errors.status(response.status));
    return new ApiError(response.status, message, Array.isArray(errors) ? (errors as Problem[]) : []);
  } catch {
    return new ApiError(response.status, texts.errors.status(response.status));
  }
}

function unwrap(body: unknown): unknown {
  return typeof body === 'object' && body !== null && 'success' in body ? Object(body).data : body;
}

function cursorOf(link: string | null): string | undefined {
  const [, url] = /<([^>]*)>;\s*rel="?next"?/.exec(link ?? '') ?? [];
  return url === undefined
    ? undefined
    : (new URL(url, location.origin).searchParams.get('cursor') ?? undefined);
}

/** For idempotency keys. `crypto.randomUUID` exists only in pages of https and of this machine. */
export function randomName(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * The API with an operator's token, and what was logged.
 */
import { Writable } from 'node:stream';
import pino from 'pino';
import type { Database } from '../../../src/store/db/db.ts';
import { type Answer, type ApiStory, createApiStory } from '../api-story.ts';

export const TOKEN = 'f00d'.repeat(8);
/** The headers by which the operator acts for a watcher. */
export const forWatcher = (id: number | string) => ({ 'chainbell-watcher': String(id) });

export type AdminStory = ApiStory & {
  logged: Record<string, unknown>[];
  /** A request with the operator's token. */
  admin(
    method: Parameters<ApiStory['ask']>[0],
    url: string,
    options?: { body?: unknown; headers?: Record<string, string> },
  ): Promise<Answer>;
  /** Method, path, status and watcher of what the operator's log has. */
  audited(): unknown[][];
};

export function createAdminStory(
  database: Database,
  options: Parameters<typeof createApiStory>[3] = {},
  sendTest?: Parameters<typeof createApiStory>[2],
): AdminStory {
  const logged: Record<string, unknown>[] = [];
  const stream = new Writable({
    write(line, _encoding, done) {
      logged.push(JSON.parse(String(line)));
      done();
    },
  });
  const log = pino(stream);
  const story = createApiStory(database, undefined, sendTest, { ...options, adminToken: TOKEN, log });
  return {
    ...story,
    logged,
    admin: (method, url, given) => story.ask(method, url, { key: TOKEN, ...given }),
    audited: () =>
      logged
        .filter(({ msg }) => msg === 'admin.answered')
        .map(({ method, path, status, watcher }) => [method, path, status, watcher]),
  };
}

export const dataOf = (json: unknown) => Object(json).data;

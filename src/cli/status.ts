/**
 * `chainbell status`: reads /status of a running service and prints it as tables.
 */
import type { Command } from 'commander';
import type { StatusBody } from '../api/ops/status-body.ts';
import type { Config } from '../config/schema.ts';
import { never, startAbort } from '../core/abort.ts';
import { Fault, isTlsError, messageOf } from '../core/fault.ts';
import { exitCodes, withConfigOrDemo, withFaults } from './exit.ts';
import { renderStatus } from './status-tables.ts';

type Flags = { config?: string; url?: string; json?: boolean };

/** The service reads its database for /status. Taking longer than this means that it is in trouble. */
const ANSWER_MS_MAX = 10_000;

export function addStatusCommand(program: Command): void {
  program
    .command('status')
    .description('show the state of the running service; exit code 75 if it is degraded or holding')
    .option('--config <file>', 'configuration file (default: chainbell.yaml if it exists)')
    .option('--url <url>', 'URL of the service (default: http.host and http.port of the configuration)')
    .option('--json', 'print the body of /status as JSON to standard output')
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- status --url http://127.0.0.1:8080')
    .action(async (flags: Flags) => {
      const { url } = flags;
      if (url === undefined) await withConfigOrDemo(flags, (config) => show(addressOf(config), flags));
      else await withFaults(() => show(url, flags));
    });
}

async function show(origin: string, flags: Flags): Promise<void> {
  const status = await readStatus(origin);
  process.stdout.write(flags.json === true ? `${JSON.stringify(status)}\n` : renderStatus(status));
  if (status.state !== 'ok') process.exitCode = exitCodes.tryAgain;
}

/** @throws Fault `unavailable` with the next step to take. */
async function readStatus(origin: string): Promise<StatusBody> {
  const given = URL.parse(origin);
  if (given === null || !/^https?:$/.test(given.protocol))
    throw new Fault('not_found', `${origin} is not an HTTP URL. Write it like http://127.0.0.1:8080`);
  if (given.username !== '' || given.password !== '')
    throw new Fault('not_found', `the URL must not contain a user name or password. Use ${given.origin}`);
  if (given.href !== `${given.origin}/`)
    throw new Fault(
      'not_found',
      `the URL must not contain a path or a query, because the service has its paths at the root. Use ${given.origin}`,
    );
  const url = new URL('/status', given);
  const limit = startAbort(never, ANSWER_MS_MAX);
  let response: Response;
  let text: string;
  try {
    response = await fetch(url, { signal: limit.signal });
    text = await response.text();
  } catch (error) {
    const advice = isTlsError(error)
      ? `Chainbell itself serves HTTP without TLS: give its URL as http://${url.host}`
      : 'Start it with chainbell start, or give its URL with --url';
    throw new Fault('unavailable', `no service answers at ${url.origin} (${messageOf(error)}). ${advice}`);
  } finally {
    limit.release();
  }
  if (response.status === 503)
    throw new Fault(
      'unavailable',
      `${url.href} answered HTTP 503: the service is stopping, or a proxy there has no process that is ready. See ${url.origin}/readyz`,
    );
  const [{ Check }, { StatusBody }] = await Promise.all([
    import('typebox/value'),
    import('../api/ops/status-body.ts'),
  ]);
  const json = parseJson(text);
  if (response.status === 200 && Check(StatusBody, json)) return json;
  if (response.status >= 500)
    throw new Fault(
      'unavailable',
      `${url.href} answered HTTP ${response.status}. The log of that service says why`,
    );
  throw new Fault(
    'unavailable',
    `the server at ${url.origin} (HTTP ${response.status}) is not a Chainbell of this version. Give the right URL with --url`,
  );
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The URL of the configured API from this machine. A service that listens on all addresses is reached on loopback. */
function addressOf({ http: { host, port } }: Config): string {
  if (port === 0)
    throw new Fault(
      'not_found',
      'http.port is 0, so the service chose a free port. Give its URL with --url http://host:port',
    );
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`;
}

/**
 * Creates loggers. Logs are events with fields, one line for each: `log.info({ block: 7 }, 'blocks.committed')`.
 */
import { createRequire } from 'node:module';
import { Writable } from 'node:stream';
import pino from 'pino';

const require = createRequire(import.meta.url);

export type Log = pino.Logger;

export type LogOptions = {
  level: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent';
  /** auto: pretty on a terminal, JSON lines elsewhere. */
  format: 'auto' | 'json' | 'pretty';
};

/** Lines that are kept while standard error can't be written, as on a full disk. Further ones are dropped and counted. */
const KEPT_BYTES_MAX = 1_048_576;

/** Fields that may hold a secret in any event. docs/reference/logs.md lists them. */
const REDACTED = [
  'authorization',
  'api_key',
  'apiKey',
  'key',
  'secret',
  '*.authorization',
  '*.api_key',
  '*.apiKey',
];

/** Fields that may quote nodes and other services, which can repeat secrets that were sent to them. */
const FOREIGN = ['error', 'message', 'reason'];

/**
 * A logger on standard error, because standard output is for data. If other code draws on the terminal, pass it as `terminal`:
 * pretty lines then go through its `write`. `hide` removes secrets from texts of other services.
 */
export function createLog(
  options: LogOptions,
  terminal?: { write(text: string): void },
  hide: (text: string) => string = (text) => text,
): Log {
  const isPretty =
    options.format === 'pretty' || (options.format === 'auto' && process.stderr.isTTY === true);
  // With a minLength of 0, flush does nothing. Every line is longer than 1 byte, so each is still written at once.
  const standardError = pino.destination({ dest: 2, sync: true, minLength: 1, maxLength: KEPT_BYTES_MAX });
  const destination = isPretty
    ? loadPretty()({
        destination: streamTo(terminal ?? standardError),
        ignore: 'pid,hostname',
        translateTime: 'HH:MM:ss.l',
        singleLine: true,
      })
    : standardError;
  const log = pino(
    {
      level: options.level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: {
        level: (label) => ({ level: label }),
        log(fields) {
          const foreign = FOREIGN.flatMap((name) => {
            const text = fields[name];
            return typeof text === 'string' ? [[name, hide(text)]] : [];
          });
          return foreign.length === 0 ? fields : { ...fields, ...Object.fromEntries(foreign) };
        },
      },
      redact: { paths: REDACTED, censor: '[redacted]' },
    },
    destination,
  );
  countDropped(log, standardError);
  return log;
}

/** Nothing depends on the log, so an error of its destination has no effect: each line tries to write the ones before it too. */
function countDropped(log: Log, destination: ReturnType<typeof pino.destination>): void {
  let lines = 0;
  destination.on('error', () => {});
  destination.on('drop', () => {
    lines += 1;
    // A line that is dropped does not try to write the others. Without this, none would once no line fits.
    destination.flush();
  });
  destination.on('drain', () => {
    if (lines === 0) return;
    log.warn({ lines }, 'logs.dropped');
    lines = 0;
  });
}

/** Loaded only if needed, because most services write JSON and start faster without it. */
function loadPretty(): typeof import('pino-pretty') {
  return require('pino-pretty');
}

function streamTo(terminal: { write(text: string): void }): Writable {
  return new Writable({
    write(chunk, _encoding, done) {
      terminal.write(String(chunk));
      done();
    },
  });
}

/** A logger that writes nothing. */
export function silentLog(): Log {
  return pino({ level: 'silent' });
}

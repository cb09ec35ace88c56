/**
 * The log events of docs/reference/logs.md. The code is searched for event names, so that none is missing here and none is left
 * over.
 */
import { globSync, readFileSync } from 'node:fs';
import { code, markdownTable } from './table.ts';

type LogEvent = { level: string; fields: string; meaning: string };

const EVENTS: Record<string, LogEvent> = {
  'service.waits': {
    level: 'warn',
    fields: 'waitingFor, error, givesUpInSeconds',
    meaning:
      'The start waits for the database or the nodes, or for a command that has the folder of the embedded database. `error` says what is missing.',
  },
  'service.started': {
    level: 'info',
    fields: 'api, metrics, chain, database, roles, process, connectionsMax',
    meaning:
      'The process is ready. `api` and `metrics` are its URLs; `connectionsMax` says how many connections it opens to PostgreSQL at most.',
  },
  'service.no_console': {
    level: 'warn',
    fields: 'command',
    meaning: 'The console is not built, so `/console` answers 404. `command` builds it in a clone.',
  },
  'service.failed': {
    level: 'error',
    fields: 'err',
    meaning:
      'A bug ends the process, or another version has changed the database so that this one cannot go on. The next start continues from what is stored.',
  },
  'service.stopped': {
    level: 'info',
    fields: '',
    meaning: 'The process has stopped cleanly. A start that fails does not log it.',
  },
  'service.stop_cut': {
    level: 'warn',
    fields: 'left, afterMs',
    meaning:
      'The stop took stopSeconds, and the parts in `left` had not ended, for example because the database does not answer. Other processes continue their work.',
  },
  'logs.dropped': {
    level: 'warn',
    fields: 'lines',
    meaning:
      'Standard error works again. While it could not be written, for example because a disk was full, Chainbell kept 1 MiB of lines and dropped the `lines` after them.',
  },
  'config.warning': {
    level: 'warn',
    fields: 'path, message',
    meaning: 'The configuration is valid but risky. The message says why and what to change.',
  },
  'database.migrated': { level: 'info', fields: 'applied', meaning: 'Migrations were applied at the start.' },
  'database.not_moved': {
    level: 'warn',
    fields: 'dataDir',
    meaning:
      'A new installation begins on the empty database at `database.url`, while the embedded database in this folder has not moved there. If it should, stop the service, empty the new database, and run `chainbell migrate --from-embedded`.',
  },
  'database.newer': {
    level: 'warn',
    fields: 'newer',
    meaning:
      'A newer version has applied these migrations. This version can work with them, for example until it is upgraded too.',
  },
  'replica.used': {
    level: 'info',
    fields: 'lagMs',
    meaning: 'Reads of the API go to the replica from now on.',
  },
  'replica.left': {
    level: 'warn',
    fields: 'lagMs, problem',
    meaning: 'The replica is down or too far behind, so the primary serves the reads. `problem` says which.',
  },
  'webhooks.guard_opened': {
    level: 'warn',
    fields: 'allowHttp, allowCidrs, meaning',
    meaning: 'The configuration allows webhooks without TLS or to private networks.',
  },
  'operator.no_socket': {
    level: 'warn',
    fields: 'error',
    meaning: 'The socket for commands could not be opened, so commands are refused while this service runs.',
  },
  'loop.fault': {
    level: 'warn',
    fields: 'loop, code, error, retryMs',
    meaning: 'A background task failed. It is retried after `retryMs`.',
  },
  'loop.bug': {
    level: 'error',
    fields: 'loop, err, retryMs, others',
    meaning:
      "A bug stopped work that blocks and webhooks don't depend on. It is tried again after `retryMs`; everything else goes on. At most one line a minute for each loop; `others` counts its bugs since the line before.",
  },
  'clock.jumped': {
    level: 'warn',
    fields: 'jumpedMs, meaning',
    meaning:
      "The database's clock was set. After a step of a minute or more, pruning pauses for up to a day.",
  },
  'limits.counted': {
    level: 'info',
    fields: 'the limits, durationMs',
    meaning: 'Limits were switched on, and existing watched addresses and origins were counted.',
  },
  'follow.ids_moved': {
    level: 'warn',
    fields: 'after',
    meaning:
      'A standby of PostgreSQL was promoted, or the database was recovered to a point in time. New webhooks have an `id` above `after`, because ids of lost commits may have been sent.',
  },
  'follow.timeline_hidden': {
    level: 'warn',
    fields: '',
    meaning:
      'The server does not let the role call `pg_current_wal_lsn` and `pg_walfile_name`, so a fail-over to an asynchronous standby is not noticed, and may use ids twice.',
  },
  'follow.waits_for_start': {
    level: 'warn',
    fields: 'startBlock, head',
    meaning: '`chain.startBlock` is above the head. Following begins there.',
  },
  'backfill.started': {
    level: 'info',
    fields: 'block, head',
    meaning: 'The service is far behind the head and catches up.',
  },
  'backfill.progress': {
    level: 'info',
    fields: 'block, head, percent, blocksPerSecond, transfersPerSecond, secondsLeft',
    meaning: 'Progress every 10 s. A terminal shows a bar instead.',
  },
  'backfill.done': {
    level: 'info',
    fields: 'blocks, transfers, seconds, head',
    meaning: 'The service has caught up.',
  },
  'filter.built': {
    level: 'info',
    fields: 'entries, bytes, durationMs',
    meaning: 'The address filter is ready. From now on blocks use it.',
  },
  'filter.dropped': {
    level: 'info',
    fields: 'reason',
    meaning:
      'The address filter is built again, and blocks ask the database meanwhile. `reason`: `lost` (another follower began one, or the database lost a part of its history), `behind` (too many changes at once), `too small` or `stale`.',
  },
  'blocks.committed': {
    level: 'info (debug during a backfill)',
    fields: 'block, blocks, head, transfers, notifications, durationMs',
    meaning: 'Blocks were stored.',
  },
  'chain.reorg': {
    level: 'warn',
    fields: 'ancestor, depth, tip, hash, branch',
    meaning:
      'A reorg orphaned stored blocks. `tip` and `hash` are the number and hash of the former tip, `branch` is the hash of the new one.',
  },
  'shards.lost': {
    level: 'warn',
    fields: 'worker, block, error',
    meaning:
      'Citus: this worker does not answer, so blocks after `block` leave out its shards until it does. `error` is that of the commit.',
  },
  'shards.still_lost': {
    level: 'warn',
    fields: 'worker, error',
    meaning: 'The worker answered, but its shards could not get the next blocks. They try again.',
  },
  'shards.catching_up': {
    level: 'info',
    fields: 'worker, blocks, notifications',
    meaning: 'The worker answers again, and its shards got some of the blocks that they miss.',
  },
  'shards.back': {
    level: 'info',
    fields: 'worker, blocks, notifications',
    meaning: 'The shards of this worker miss no block anymore.',
  },
  'node.probed': {
    level: 'info',
    fields: 'node, its capabilities, traceError',
    meaning:
      'A node answered for the first time, or again after its capabilities were in doubt. A warning with `traceError` if it answered with an error to a trace or with traces that cannot be used, or can no longer trace: it is asked again after 1, 2, 4 … minutes, at most an hour, or 5 minutes if it could trace before.',
  },
  'node.lost_method': {
    level: 'warn',
    fields: 'node, error',
    meaning: 'A node no longer supports a method that it had, or its traces turned out to be of no use.',
  },
  'traces.back': {
    level: 'warn',
    fields: 'from, to',
    meaning:
      'A node can trace again. Blocks from `from` to `to` were read without traces, so they lack internal transfers: run `chainbell repair` over them.',
  },
  'node.websocket': {
    level: 'debug',
    fields: 'node, state, reason',
    meaning: 'A subscription was opened or closed.',
  },
  'node.disagrees': {
    level: 'warn',
    fields: 'node, number, the two hashes',
    meaning: 'A node has a different block than the stored one. It is not used until it agrees.',
  },
  'node.not_compared': {
    level: 'warn',
    fields: 'node',
    meaning:
      'A node did not say in time which blocks it has. It is compared with the stored blocks again after 30 s.',
  },
  'node.agrees': { level: 'info', fields: 'node, number', meaning: 'A node agrees again.' },
  'node.disproved': {
    level: 'warn',
    fields: 'node, error, count',
    meaning: 'A proof or other nodes contradicted answers of a node.',
  },
  'node.outvoted': {
    level: 'warn',
    fields: 'node, what, agreeing',
    meaning: 'A quorum of other nodes gave a different answer than this node.',
  },
  'node.gave_false_answer': {
    level: 'warn, or error if stored blocks may be affected',
    fields: 'node, block, from, to, command',
    meaning:
      'A node gave a false answer. `command` checks and repairs the stored blocks that it may have falsified.',
  },
  'sender.forged': {
    level: 'warn',
    fields: 'block, transaction, sender, signer',
    meaning: "A node gave a sender that the transaction's signature contradicts.",
  },
  'sender.outvoted': {
    level: 'warn',
    fields: 'block, transaction, sender, agreed',
    meaning: 'A quorum gave a different sender for a transaction whose signature cannot be checked.',
  },
  'proof.calibrated': {
    level: 'info, or warn if a check is off',
    fields: 'mode, the state of each check',
    meaning: 'The service has observed which proof checks the chain honors.',
  },
  'pairs.backfill_progress': {
    level: 'info',
    fields: 'pairs, block, hours',
    meaning: 'Past swaps of new pairs are read.',
  },
  'pairs.backfill_done': {
    level: 'info',
    fields: 'pairs, block, hours',
    meaning: 'Past swaps of new pairs have been read.',
  },
  'pair.state_differs': {
    level: 'warn',
    fields: 'pair, block, stored',
    meaning: 'The contract of a pair and its logs disagree. The contract is used.',
  },
  'pair.differs': {
    level: 'warn',
    fields: 'pair, error',
    meaning:
      'The contract of a pair that has stored data, or of one of its tokens, no longer answers as it is configured. The configuration counts. Logged at the start and once a day.',
  },
  'points.awarded': { level: 'debug', fields: 'pendingAwards, awards', meaning: 'Points were awarded.' },
  'points.no_price': {
    level: 'warn',
    fields: 'asset, at',
    meaning: 'A points rule needs a price that does not exist at that time, or is too old then.',
  },
  'price.decided': { level: 'debug', fields: 'asset, price', meaning: 'A price was accepted.' },
  'price.source': {
    level: 'info, or warn if it is not used',
    fields: 'asset, source, verdict, error',
    meaning: 'The verdict about a price source has changed.',
  },
  'price.alarm': {
    level: 'warn',
    fields: 'asset, price, isDisputed',
    meaning: 'There is no price, or its sources disagree.',
  },
  'price.unreadable': {
    level: 'warn',
    fields: 'asset, error',
    meaning: 'A price could not be read from the database.',
  },
  'supply.stale': {
    level: 'warn',
    fields: 'error, of',
    meaning: 'No node answers, so an older supply is served.',
  },
  'supply.not_kept': {
    level: 'warn',
    fields: 'error',
    meaning: 'A reading of the supply could not be stored.',
  },
  'supply.not_found': { level: 'warn', fields: 'error', meaning: 'The stored supply could not be read.' },
  'cache.refresh_failed': {
    level: 'warn',
    fields: 'answer, error',
    meaning: 'A public response could not be refreshed, so the old one is served.',
  },
  'http.answered': {
    level: 'debug',
    fields: 'method, route, code, requestId, durationMs',
    meaning: 'A request was answered.',
  },
  'status.bug': {
    level: 'error',
    fields: 'err, others',
    meaning:
      '`/status` could not read what is stored, because of a bug. It shows the rest. At most one line a minute; `others` counts the bugs since the line before.',
  },
  'http.failed': {
    level: 'error',
    fields: 'err, requestId, url',
    meaning: 'A request failed with a status of 500 or above.',
  },
  'http.aborted': {
    level: 'debug',
    fields: 'err, requestId, url',
    meaning: 'The client closed the connection before its request was complete.',
  },
  'http.stream_ended': { level: 'error', fields: 'err', meaning: 'A stream of changes ended with an error.' },
  'http.connections_refused': {
    level: 'warn',
    fields: 'connectionsMax, droppedCount',
    meaning: 'Connections were refused because all were in use. Logged once a minute at most.',
  },
  'admin.answered': {
    level: 'info',
    fields: 'method, path, status, watcher, requestId',
    meaning:
      'A request of the operator API was answered, or one to a path of watchers with the token of the operator or its header `chainbell-watcher`. `watcher` is the id that the header names.',
  },
  'admin.stream_opened': {
    level: 'info',
    fields: 'method, path, status, watcher, requestId',
    meaning: 'The operator opened a stream. `admin.answered` follows when it ends.',
  },
  'delivery.attempted': {
    level: 'debug, or warn if it failed',
    fields:
      'notification, watchedAddress, watcher, attempt, outcome, status, durationMs, requests, nextRetryAt, settled',
    meaning:
      'A delivery attempt has ended. `requests` is present if it is above 1. `settled` is `lost` if the outcome was not stored, because another worker has the delivery queue.',
  },
  'delivery.tested': {
    level: 'info',
    fields: 'watchedAddress, watcher, outcome, status, durationMs',
    meaning: 'A test webhook was sent.',
  },
  'delivery.outcomes_wait': {
    level: 'warn',
    fields: 'outcomes, error',
    meaning: 'Outcomes could not be stored yet. They are kept and retried.',
  },
  'delivery.queue_waits': {
    level: 'warn',
    fields: 'lane, error, others',
    meaning:
      'A delivery queue could not be read and waits: for the database, or for a secret that this process lacks (`error` says which). At most one line in 10 s; `others` counts the waits of all queues since the line before.',
  },
  'delivery.release_failed': {
    level: 'warn',
    fields: 'lane, error',
    meaning: 'The lease of a delivery queue could not be given back. It expires by itself.',
  },
  'delivery.queue_healed': {
    level: 'warn',
    fields: 'lanes, meaning',
    meaning: 'Due notifications were found that no worker was looking for. Please report it.',
  },
  'delivery.align_failed': {
    level: 'warn',
    fields: 'watcher, watchedAddresses, error',
    meaning:
      'A watched address was changed or deleted, and moving or cancelling all its waiting notifications failed. Workers do it for each of them when it is due.',
  },
  'delivery.pending_alarm': {
    level: 'warn',
    fields: 'watcher, pending, limit',
    meaning:
      'A watcher has more pending notifications than `limits.pendingNotifications`. Those of each slice are counted up to 100,000 above it.',
  },
  'delivery.pending_ended': {
    level: 'info',
    fields: 'watcher, limit',
    meaning: 'That watcher is below the limit again.',
  },
};

/** Texts in the code that look like events. */
const OTHERS = new Set(['chain.quorum', 'node.example']);
/** A call of a logger, up to the end of its statement: `log.info(…);` or `log[level](…);`. */
const LOG_CALL = /\blog(?:\.(?:trace|debug|info|warn|error)|\[[^\n]*?\])\([^;]*/g;
const EVENT_NAME = /'([a-z]+\.[a-z_]+)'/g;

/** @throws Error if an event in the code has no description, or a description has no event. */
export function renderLogEvents(root: string): string {
  const found = findEvents(root);
  const missing = [...found].filter((name) => EVENTS[name] === undefined);
  const unknown = Object.keys(EVENTS).filter((name) => !found.has(name));
  if (missing.length > 0) throw new Error(`test/kit/reference/log-events.ts lacks ${missing.join(', ')}`);
  if (unknown.length > 0)
    throw new Error(
      `test/kit/reference/log-events.ts describes ${unknown.join(', ')}, which are not in src/`,
    );
  const rows = Object.entries(EVENTS).map(([name, { level, fields, meaning }]) => [
    code(name),
    level,
    fields,
    meaning,
  ]);
  return markdownTable(['Event', 'Level', 'Fields', 'Meaning'], rows);
}

/** The names in calls of loggers, and names elsewhere in the code that begin like a known event. */
function findEvents(root: string): Set<string> {
  const topics = new Set(Object.keys(EVENTS).map((name) => name.split('.', 1)[0]));
  const names = globSync('src/**/*.ts', { cwd: root }).flatMap((file) => {
    const text = readFileSync(`${root}/${file}`, 'utf8');
    const inCalls = Array.from(text.matchAll(LOG_CALL), ([call]) => namesIn(call)).flat();
    const elsewhere = namesIn(text).filter((name) => topics.has(name.split('.', 1)[0]));
    return [...inCalls, ...elsewhere];
  });
  return new Set(names.filter((name) => !OTHERS.has(name)));
}

const namesIn = (text: string): string[] => Array.from(text.matchAll(EVENT_NAME), ([, name = '']) => name);

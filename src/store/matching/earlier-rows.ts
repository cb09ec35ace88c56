/**
 * What the matching join does with notifications that its transactions have already. A contract can make thousands of transfers in one
 * transaction. So their notifications are read once and paired with the transfers by sorting: for a join, the planner expects one row,
 * and would compare each notification with each transfer.
 */
import { listOf } from '../db/arrays.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { isRemovalNotice, isTransferMessage, transferRevision } from '../delivery/message-kind.ts';
import { kindText } from '../delivery/notification-rows.ts';

/** The columns of `wanted` without the kind, which is a text here, and without those that `before` has too. */
const WANTED = [
  ...[
    'row',
    'lane_id',
    'watched_at',
    'ordinal',
    'position',
    'block_number',
    'state',
    'release_number',
    'sequence',
  ],
  ...['unsent_epoch', 'is_kept'],
];
/** The columns that a notification and a row of `wanted` have in common, by which they are paired. */
const CONTENT = ['tx_hash', 'kind', 'sender', 'receiver', 'token', 'amount', 'occurrence'];
const RECORD = ['shard_id', 'watched_address_id'];
/** The columns of a notification that decide what becomes of it. */
const STORED = [
  ...['id', 'created_at', 'lane_id', 'unsent_epoch', 'retry_count', 'redelivery_count', 'next_retry_at'],
  ...['next_attempt_at', 'may_be_seen', 'state', 'revision', 'reorg_id'],
];

const listed = (names: readonly string[], each = (name: string) => name): Sql => raw(names.map(each).join());
const nulls = (names: readonly string[]): Sql => listed(names, () => 'null');

/**
 * The CTE `before`: the notifications `n` that match the condition. `block`, `position` and `new_ordinal` are those of the transfer in `t`
 * with their content, or null.
 */
export const beforeAmong = (statuses: Sql, isOfMatches: Sql): Sql => sql`
    before as materialized (
      select * from (
        select *, max(t_block) over content as block, max(t_position) over content as position,
          max(t_ordinal) over content as new_ordinal
        from (
          select ${listed([...RECORD, ...STORED, 'ordinal', ...CONTENT], (name) => `n.${name}`)}, null::bigint as t_block,
            null::bigint as t_position, null::integer as t_ordinal
          from ${statuses} n where ${isOfMatches}
          union all
          select ${nulls([...RECORD, ...STORED, 'ordinal'])}, tx_hash, ${kindText(sql`kind`)}, sender, receiver, token, amount, occurrence,
            block, position, ordinal
          from t
        ) as either
        window content as (partition by ${listed(CONTENT)})
      ) as each_one
      where id is not null
    ),`;

/** The rows for notifications that these reorgs orphaned and whose content is among the transfers `t`. */
export const keptAmong = (
  reorgIds: readonly number[],
  { watches, itsLane, row }: { watches: Sql; itsLane: Sql; row: Sql },
): Sql => sql`
        select ${row}
        from (
          select shard_id, watched_address_id, ${kindCodeOf(sql`kind`)} as kind, tx_hash, new_ordinal as ordinal, sender, receiver, token,
            amount, occurrence, position, block
          from before where block is not null and reorg_id = any(${listOf(reorgIds)}::bigint[])
        ) as t
        join ${watches} w on w.shard_id = t.shard_id and w.id = t.watched_address_id
        ${itsLane}`;

const kindCodeOf = (kind: Sql): Sql =>
  sql`(case ${kind} when 'transaction' then 'c' when 'internal' then 'i' else 't' end)::"char"`;

/**
 * CTEs for transfers that have a notification already (`earlier`). Those that are canonical again are updated (`changed`). An
 * acknowledged one stays processed. One that this commit orphaned only moves to its new block, and waits for its
 * confirmations again unless a receiver may have seen it. After a removal notice the row gets the next even revision, with a new
 * schedule. Delivery of a withdrawn one resumes at once, and its failures still count.
 */
export const earlierAmong = (reorgIds: readonly number[], watches: Sql): Sql => sql`, placed as materialized (
      select * from (
        select ${listed([...WANTED, ...RECORD, ...CONTENT])}, ${listed(STORED, (name) => `lag(n_${name}) over pair as n_${name}`)}
        from (
          select ${listed([...WANTED, ...RECORD])}, tx_hash, ${kindText(sql`kind`)} as kind, sender, receiver, token, amount, occurrence,
            ${listed(STORED, (name) => `null as n_${name}`)}
          from wanted
          union all
          select ${nulls(WANTED)}, ${listed([...RECORD, ...CONTENT, ...STORED])} from before
        ) as either
        -- The notification with the lowest id comes just before its row.
        window pair as (partition by ${listed([...RECORD, ...CONTENT])} order by row is not null, n_id desc)
      ) as each_one
      where row is not null
    ), earlier as materialized (
      select p.row, p.lane_id as new_lane_id, p.state as new_state, p.release_number as new_release_number,
        p.sequence as new_sequence, p.unsent_epoch as new_epoch, p.block_number as new_block_number, p.ordinal as new_ordinal,
        ${transferRevision} as new_revision, p.shard_id, n.id, n.created_at, n.lane_id, p.watched_address_id, n.unsent_epoch,
        case when ${isRemovalNotice} then 0 else n.retry_count end as retry_count,
        case when ${isRemovalNotice} then 0 else n.redelivery_count end as redelivery_count,
        n.next_retry_at, n.next_attempt_at, n.may_be_seen, n.state,
        n.reorg_id is not null or n.state = 'withdrawn' as is_changed,
        ${isRemovalNotice} or n.state in ('withdrawn', 'cancelled') as is_sent_again,
        ${isTransferMessage} and (n.state = 'processed'
          or n.state = 'waiting' and n.may_be_seen and n.reorg_id = any(${listOf(reorgIds)}::bigint[])) as stays
      from placed p cross join lateral (select ${listed(STORED, (name) => `p.n_${name} as ${name}`)}) as n
      where n.id is not null
      union all ${endedAmong(reorgIds, watches)}
    ), fresh as materialized (
      select ${listed([...WANTED, ...RECORD, ...CONTENT].filter((name) => name !== 'kind'))}, ${kindCodeOf(sql`kind`)} as kind, ${replacedId} as replaces
      from (
        select *, max(array[ordinal, lost_id]) filter (where lost_id is not null) over (${ofKind} order by ordinal) as below,
          min(array[ordinal, -lost_id]) filter (where lost_id is not null) over (${ofKind} order by ordinal desc) as above
        from (
          select ${listed([...WANTED, ...RECORD, ...CONTENT])}, null::bigint as lost_id from placed where n_id is null and not is_kept
          union all
          select ${listed(WANTED, (name) => (name === 'ordinal' ? name : 'null'))}, ${listed([...RECORD, ...CONTENT])}, id
          from before where block is null and reorg_id is not null and may_be_seen
        ) as either
      ) as each_one
      where row is not null
    )`;

/**
 * Ended notifications of records that are deleted, in the columns of `earlier`. Those that these reorgs orphaned, and whose transfers stay,
 * are in the log as before.
 */
const endedAmong = (reorgIds: readonly number[], watches: Sql): Sql => sql`
      select null, n.lane_id, 'processed', null, null, n.unsent_epoch, n.block, n.new_ordinal, n.revision, n.shard_id, n.id, n.created_at,
        n.lane_id, n.watched_address_id, n.unsent_epoch, n.retry_count, n.redelivery_count, n.next_retry_at, n.next_attempt_at,
        n.may_be_seen, 'processed', true, false, true
      from before n
      where n.block is not null and n.reorg_id = any(${listOf(reorgIds)}::bigint[]) and n.state in ('processed', 'cancelled')
        and ${isTransferMessage}
        and not exists (select from ${watches} w where w.shard_id = n.shard_id and w.id = n.watched_address_id)`;

/** The transfers of one kind in a transaction, of one record. */
const ofKind = sql`partition by ${listed(RECORD)}, tx_hash, kind`;

/**
 * The notification that the new row replaces: of the same record and transaction, possibly seen by the receiver, with content
 * that the transaction no longer has. If there are several, the one at the nearest position.
 */
const replacedId = sql`
        case when above is null or ordinal - below[1] < above[1] - ordinal
          or ordinal - below[1] = above[1] - ordinal and below[2] > -above[2] then below[2] else -above[2] end`;

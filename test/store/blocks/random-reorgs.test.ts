import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Transfer } from '../../../src/domain/block.ts';
import { findTip } from '../../../src/store/blocks/blocks.ts';
import type { DueNotification } from '../../../src/store/delivery/due.ts';
import { releaseLanes } from '../../../src/store/delivery/lanes.ts';
import { settle } from '../../../src/store/delivery/settle.ts';
import { attemptDue, leaseDue, readDue } from '../../kit/attempts.ts';
import { hashOf, later, listNotifications, mine, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { createDice } from '../../kit/dice.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { rollbackTo } from '../../kit/rollback.ts';

const STEPS = 150;

onSampledDatabase(import.meta.url, ({ database }) => {
  for (const seed of [1, 2]) {
    test(`after random reorgs, failures and overlapping attempts, the last message for each transfer is true and was delivered (${seed})`, async () => {
      const dice = createDice(seed);
      const strict = await watchAddress(database(), { settings: { removed: true, strictOrder: true } });
      const patient = await watchAddress(database(), { settings: { removed: true, confirmations: 1 } });
      const blocks: Transfer[][] = [[]];
      let pool: Transfer[] = [];
      /** The revision of each notification that was sent last. */
      const lastSent = new Map<number, number>();
      let ms = 0;
      let headers = 0;
      let end: (() => Promise<void>) | undefined;
      const noteSent = (due: readonly DueNotification[]) => {
        for (const { id, revision } of due) lastSent.set(id, revision);
        assert.ok(due.filter((one) => one.watchedAddressId === strict.id).length <= 1);
      };

      async function mineBlock(): Promise<void> {
        const fresh = Array.from({ length: dice(3) }, () => transferOf());
        const again = pool.filter(() => dice(2) === 0);
        pool = pool.filter((one) => !again.includes(one));
        const number = blocks.push([...again, ...fresh]);
        headers += 1;
        const header = { number, hash: hashOf(headers), parentHash: hashOf(0), minedAt: later(ms) };
        await mine(database(), header, blocks.at(-1) ?? [], { now: later(ms) });
      }

      async function reorg(): Promise<void> {
        const tip = await findTip(database());
        if (tip === undefined || blocks.length < 2) return;
        const orphaned = blocks.splice(Math.max(1, blocks.length - 1 - dice(3)));
        pool.push(...orphaned.flat().filter(() => dice(2) === 0));
        await rollbackTo(database(), { ancestorNumber: blocks.length, expectedTip: tip, now: later(ms) });
      }

      /** Begins attempts that are settled in a later step. */
      async function begin(): Promise<void> {
        const now = later(ms);
        const [lane] = await leaseDue(database(), { now, limit: 1 });
        if (lane === undefined) return;
        const due = await readDue(database(), lane, now);
        noteSent(due);
        const outcome =
          dice(2) === 0
            ? { outcome: 'success', status: 200, nextRetryAt: undefined }
            : { outcome: 'timeout', status: undefined, nextRetryAt: later(ms + 60_000) };
        end = async () => {
          const common = {
            lane,
            ...outcome,
            startedAt: now,
            mayHaveArrived: true,
            durationMs: 1,
            response: undefined,
          };
          await settle(
            database(),
            due.map(({ id, revision, retryCount, redeliveryCount }) => ({
              ...{
                ...common,
                notificationId: id,
                revision,
                retryCount,
                redeliveryCount,
                settledAt: later(ms),
              },
            })),
          );
          await releaseLanes(database(), [lane], later(ms));
          end = undefined;
        };
      }

      await mineBlock();
      for (let step = 0; step < STEPS; step += 1) {
        ms += dice(30_000);
        const choice = dice(10);
        if (choice < 4) await mineBlock();
        else if (choice < 6) await reorg();
        else if (choice < 8)
          noteSent(await attemptDue(database(), { now: later(ms), succeeds: dice(2) === 0 }));
        else await (end ?? begin)();
      }
      await end?.();
      await mineBlock();
      await mineBlock();
      for (;;) {
        ms += 60_000;
        const due = await attemptDue(database(), { now: later(ms), succeeds: true });
        if (due.length === 0) break;
        noteSent(due);
      }

      const onChain = new Set<string>(blocks.flat().map(({ txHash }) => txHash));
      const unconfirmed = new Set<string>(blocks.at(-1)?.map(({ txHash }) => txHash));
      for (const { id, tx_hash, state, watched_address_id } of await listNotifications(database())) {
        const last = lastSent.get(id);
        if (watched_address_id === patient.id && unconfirmed.has(tx_hash)) assert.equal(state, 'held');
        else if (last === undefined) assert.equal(state, 'withdrawn');
        else assert.deepEqual([state, last % 2 === 0], ['processed', onChain.has(tx_hash)]);
      }
      assert.ok([...lastSent.values()].some((revision) => revision > 1));
    });
  }
});

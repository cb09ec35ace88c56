/**
 * A made-up chain whose blocks pay bob. Tests follow it, damage the stored data, and plan and apply repairs.
 */
import {
  applyPlan,
  createRepairProgress,
  planRepairs,
  type RepairPlan,
} from '../../src/audit/repair-plan.ts';
import type { VerifyOptions } from '../../src/audit/verify.ts';
import type { BundleTransaction } from '../../src/chain/blocks/bundle.ts';
import { Fault } from '../../src/core/fault.ts';
import type { BlockReference, Transfer } from '../../src/domain/block.ts';
import { commitBlocks, insertChain } from '../../src/store/blocks/blocks.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { deferMatches, deferralLimits } from '../../src/store/matching/deferred.ts';
import { listMatches } from '../../src/store/matching/matching.ts';
import type { WatchSettings } from '../../src/store/watchers/settings.ts';
import { alice, bob, hashOf, headerOf, later, watchAddress } from './chain-story.ts';
import { createTestClock } from './clock.ts';

const noRules = { listeners: [], accruals: new Map(), referral: undefined };
export const BLOCKS = 5;
/** After the records were created, by more than any uncertainty about their order. */
export const stored = later(60_000);
const signal = new AbortController().signal;

/** Each block pays bob as many wei as its number, and `equalCalls` times more by calls of the same transaction. */
export function createPaidChain(
  database: () => Database,
  { equalCalls = 0, onRead = async () => {} }: { equalCalls?: number; onRead?(): Promise<void> } = {},
) {
  const txHashOf = (number: number) => hashOf(0x7000 + number);
  const calls = Array.from({ length: equalCalls }, () => ({ sender: alice, receiver: bob, amount: 1n }));
  const transactionIn = (number: number): BundleTransaction => ({
    ...{ hash: txHashOf(number), from: alice, to: bob, value: BigInt(number) },
    ...{ succeeded: true, calls, logs: [] },
  });
  const transfersIn = (number: number): Transfer[] => {
    const common = { txHash: txHashOf(number), sender: alice, receiver: bob, token: undefined };
    return [
      { ...common, kind: 'transaction', ordinal: 0, amount: BigInt(number) },
      ...calls.map((_, ordinal): Transfer => ({ ...common, kind: 'internal', ordinal, amount: 1n })),
    ];
  };
  const nodes: VerifyOptions['nodes'] = {
    head: async () => headerOf(BLOCKS),
    findHeader: async (reference) => headerOf(Number(reference)),
    agree: () => Promise.reject(new Fault('unavailable', 'transactions are never requested')),
    async bundles(references: readonly BlockReference[]) {
      await onRead();
      return references.map(Number).map((number) => ({
        ...{ header: headerOf(number), transactions: [transactionIn(number)], proved: true, traced: true },
      }));
    },
  };
  const options = (confirmations: number): Omit<VerifyOptions, 'onDifference'> => ({
    ...{ database: database(), nodes, witnesses: [], clock: createTestClock(), isProofOn: true, pairs: [] },
    ...{ from: undefined, to: undefined, notificationsMs: Date.now(), swapsMs: Date.now(), confirmations },
    ...{
      quorum: 'auto',
      retryDelayMs: () => 60_000,
      onDissent: () => {},
      onProgress: () => {},
      rules: noRules,
      fedAssets: [],
    },
  });
  return {
    txHashOf,
    /** Stores all blocks for a watched address of bob with these settings, and for the existing watched addresses. */
    async follow(settings?: Partial<WatchSettings>, confirmations = 0): Promise<void> {
      await insertChain(database(), 1, undefined);
      await watchAddress(database(), settings === undefined ? {} : { settings });
      const numbers = Array.from({ length: BLOCKS }, (_, index) => index + 1);
      await commitBlocks(database(), {
        expectedTip: undefined,
        blocks: numbers.map((number) => ({
          ...{ header: headerOf(number), proved: true, transfers: transfersIn(number) },
        })),
        ...{ confirmations, finalizedNumber: 0, now: stored },
      });
    },
    /** Leaves the notifications of this block for bob's records to the deferred writer, as a reorg can. */
    async defer(number: number): Promise<void> {
      await database().query(sql`delete from notification_status where block_number = ${number}`);
      const blocks = [{ header: { number }, transfers: transfersIn(number) }];
      await database().transaction(async (tx) => {
        const matches = await listMatches(tx, blocks);
        const options = { matches, hasEarlier: false, limits: deferralLimits };
        const storing = await deferMatches(tx, [{ watcherId: 1, address: bob }], options);
        if (storing !== undefined) await tx.query(sql`with ${storing} select`);
      });
    },
    plan: (confirmations = 0): Promise<RepairPlan> => planRepairs(options(confirmations), signal),
    async apply(
      made: RepairPlan,
      {
        confirmations = 0,
        mayCreditTwice = false,
        until = signal,
        on = database(),
        progress = createRepairProgress(),
      } = {},
    ) {
      await applyPlan(on, made, { confirmations, mayCreditTwice, progress }, until);
      return progress.repaired;
    },
  };
}

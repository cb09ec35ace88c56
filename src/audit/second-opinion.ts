/**
 * Decides which differences a quorum of the nodes confirms. So one node that lies or lags can neither invent a difference
 * nor hide one, unless chain.quorum is set lower. Pure.
 */
import { type QuorumSetting, quorumOf } from '../domain/quorum.ts';
import type { Difference } from './compare.ts';

/** The differences of one node's blocks; undefined, with the reason, if it did not give them. */
export type Opinion = {
  node: string;
  differences: readonly Difference[] | undefined;
  problem?: string;
};

export type Agreed = {
  /** Whether enough nodes gave the blocks. */
  isQuorate: boolean;
  /** Confirmed by a quorum. */
  differences: Difference[];
  /** Neither confirmed nor denied by a quorum. */
  unconfirmed: Difference[];
  /** Nodes that differ from the others. */
  dissents: { node: string; block: number; message: string }[];
};

export function agreeOn(opinions: readonly Opinion[], setting: QuorumSetting): Agreed {
  const quorum = quorumOf(opinions.length, setting);
  const answered = opinions.flatMap(({ node, differences }) =>
    differences === undefined ? [] : [{ node, found: new Map(differences.map((one) => [keyOf(one), one])) }],
  );
  const isQuorate = answered.length >= quorum;
  const agreed: Agreed = { isQuorate, differences: [], unconfirmed: [], dissents: [] };
  const all = new Map(answered.flatMap(({ found }) => [...found]));
  for (const [key, difference] of all) {
    const { block, message } = difference;
    const confirming = answered.filter(({ found }) => found.has(key));
    const denying = answered.filter(({ found }) => !found.has(key));
    const dissent = (node: string, claim: string) =>
      agreed.dissents.push({ node, block, message: `${claim}: ${message}` });
    if (confirming.length >= quorum) {
      agreed.differences.push(
        chooseAgreed(
          confirming.flatMap(({ found }) => found.get(key) ?? []),
          quorum,
        ),
      );
      for (const { node } of denying) dissent(node, 'only this node does not have this difference');
    } else if (denying.length >= quorum) {
      for (const { node } of confirming) dissent(node, 'only this node has this difference');
    } else {
      agreed.unconfirmed.push(difference);
      for (const { node } of denying.length > 0 ? confirming : [])
        dissent(node, 'has this difference, and another node does not');
    }
  }
  return agreed;
}

/** The difference with the details that a quorum agrees on. Without such details it has no repairs. */
function chooseAgreed(confirmed: readonly Difference[], quorum: number): Difference {
  const same = [...Map.groupBy(confirmed, ({ message }) => message).values()];
  const [agreed] = same.find((group) => group.length >= quorum) ?? [];
  if (agreed !== undefined) return agreed;
  const [first] = confirmed;
  if (first === undefined) throw new Error('a confirmed difference has no node');
  const { repairs: _, ...rest } = first;
  return rest;
}

/** The same key for the same difference, even if nodes disagree about the right value. */
function keyOf({ kind, block, notification, subject = '' }: Difference): string {
  if (notification === undefined) return `${kind} ${block} ${subject}`;
  const { watchedAddressId, txHash, ordinal, id } = notification;
  return `${kind} ${block} ${watchedAddressId} ${txHash} ${notification.kind} ${ordinal} ${id}`;
}

/**
 * The columns of a notification that say what was moved, and how they are read.
 */
import { type Address, fromBytes } from '../../core/hex.ts';

export type MovementRow = {
  sender: Uint8Array;
  receiver: Uint8Array | null;
  amount: string;
  token: Uint8Array | null;
};

export type Movement = {
  sender: Address;
  /** Undefined when a contract was made. */
  receiver: Address | undefined;
  amount: bigint;
  /** Undefined for the native coin. */
  token: Address | undefined;
};

export function toMovement({ sender, receiver, amount, token }: MovementRow): Movement {
  return {
    sender: fromBytes(sender),
    receiver: receiver === null ? undefined : fromBytes(receiver),
    amount: BigInt(amount),
    token: token === null ? undefined : fromBytes(token),
  };
}

/**
 * The columns of a notification that describe its transfer, and how to read them.
 */
import { type Address, fromBytes } from '../../core/hex.ts';

export type TransferRow = {
  sender: Uint8Array;
  receiver: Uint8Array | null;
  amount: string;
  token: Uint8Array | null;
};

export type TransferFields = {
  sender: Address;
  /** Undefined for a contract creation. */
  receiver: Address | undefined;
  amount: bigint;
  /** Undefined for the native coin. */
  token: Address | undefined;
};

export function toTransferFields({ sender, receiver, amount, token }: TransferRow): TransferFields {
  return {
    sender: fromBytes(sender),
    receiver: receiver === null ? undefined : fromBytes(receiver),
    amount: BigInt(amount),
    token: token === null ? undefined : fromBytes(token),
  };
}

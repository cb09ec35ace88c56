/** One row for each transfer, with the same fields that Chainbell stores. */
import { onchainTable, primaryKey } from 'ponder';

export const tokenTransfer = onchainTable('token_transfer', (t) => ({
  id: t.text().primaryKey(),
  token: t.hex().notNull(),
  sender: t.hex().notNull(),
  receiver: t.hex().notNull(),
  amount: t.bigint().notNull(),
  txHash: t.hex().notNull(),
  logIndex: t.integer().notNull(),
  blockNumber: t.bigint().notNull(),
}));

export const nativeTransfer = onchainTable(
  'native_transfer',
  (t) => ({
    blockNumber: t.bigint().notNull(),
    transactionIndex: t.integer().notNull(),
    txHash: t.hex().notNull(),
    sender: t.hex().notNull(),
    receiver: t.hex(),
    amount: t.bigint().notNull(),
  }),
  (table) => ({ key: primaryKey({ columns: [table.blockNumber, table.transactionIndex] }) }),
);

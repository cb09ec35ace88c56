/** Handlers that store a row for each Transfer log and for each transaction with a value. */
import { ponder } from 'ponder:registry';
import { nativeTransfer, tokenTransfer } from 'ponder:schema';

ponder.on('Token:Transfer', async ({ event, context }) => {
  await context.db.insert(tokenTransfer).values({
    id: event.id,
    token: event.log.address,
    sender: event.args.from,
    receiver: event.args.to,
    amount: event.args.amount,
    txHash: event.transaction.hash,
    logIndex: event.log.logIndex,
    blockNumber: event.block.number,
  });
});

if (process.env.BENCH_NATIVE === 'true') {
  ponder.on('Every:block', async ({ event, context }) => {
    const { transactions } = await context.client.getBlock({
      blockNumber: event.block.number,
      includeTransactions: true,
    });
    const rows = transactions
      .filter(({ value }) => value > 0n)
      .map((transaction) => ({
        blockNumber: event.block.number,
        transactionIndex: transaction.transactionIndex,
        txHash: transaction.hash,
        sender: transaction.from,
        receiver: transaction.to,
        amount: transaction.value,
      }));
    if (rows.length > 0) await context.db.insert(nativeTransfer).values(rows);
  });
}

import { setStage } from './stage.ts';
import { waitUntil } from '../test/kit/wait.ts';
let n=0;
await using stage = await setStage(() => { n += 1; return { status: 200 }; });
const { chain } = stage; const [s, r] = chain.accounts; await stage.watch(r);
console.log('start', stage.memoryMiB());
const N=Number(process.argv[2]);
for (let b = 1; b <= N; b++) { await chain.send({ from: s, to: r, valueWei: 1n }); await chain.mine(); if (b % 500 === 0) { await waitUntil(() => n >= b, {timeoutMs: 60000}); stage.receiver.requests.length=0; console.log(b, stage.memoryMiB()); } }

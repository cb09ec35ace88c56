/**
 * Works on items in groups. An item that finds no group running starts one, and items that arrive meanwhile form the next, so many
 * items cost little more than one.
 */

type GroupOptions<Item, Result> = {
  /** Maximum number of items in a group. */
  sizeMax: number;
  /** Called before each group. It may wait for more items; `count` returns how many there are. */
  gather?(count: () => number): Promise<void>;
  /** Works on a group and returns a function for each item's result, which may throw. A rejection rejects all items. */
  work(items: readonly Item[]): Promise<(item: Item) => Result>;
};

type Waiting<Item, Result> = {
  item: Item;
  resolve(result: Result): void;
  reject(error: unknown): void;
};

/** Returns a function that adds an item, and resolves when the item's group is done. Works on one group at a time. */
export function createGroups<Item, Result>({
  sizeMax,
  gather = async () => {},
  work,
}: GroupOptions<Item, Result>): (item: Item) => Promise<Result> {
  let waiting: Waiting<Item, Result>[] = [];
  let isRunning = false;

  async function run(): Promise<void> {
    while (waiting.length > 0) {
      await gather(() => waiting.length);
      const group = waiting.slice(0, sizeMax);
      waiting = waiting.slice(sizeMax);
      try {
        const resultOf = await work(group.map(({ item }) => item));
        for (const one of group) settle(one, resultOf);
      } catch (error) {
        for (const { reject } of group) reject(error);
      }
    }
    isRunning = false;
  }

  function settle({ item, resolve, reject }: Waiting<Item, Result>, resultOf: (item: Item) => Result): void {
    try {
      resolve(resultOf(item));
    } catch (error) {
      reject(error);
    }
  }

  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      if (isRunning) return;
      isRunning = true;
      void run();
    });
}

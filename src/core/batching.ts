/**
 * Works on items in groups. An item that finds no group running starts one, and items that arrive meanwhile form the next, so many
 * items cost little more than one.
 */

type GroupOptions<Item, Result> = {
  /** Maximum number of items in a group. */
  sizeMax: number;
  /** Groups worked on at once; 1 unless given. */
  groupsMax?: number;
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

/** Returns a function that adds an item, and resolves when the item's group is done. */
export function createGroups<Item, Result>({
  sizeMax,
  groupsMax = 1,
  gather = async () => {},
  work,
}: GroupOptions<Item, Result>): (item: Item) => Promise<Result> {
  let waiting: Waiting<Item, Result>[] = [];
  let running = 0;
  let isGathering = false;

  async function run(): Promise<void> {
    while (waiting.length > 0 && !isGathering) {
      isGathering = true;
      await gather(() => waiting.length);
      isGathering = false;
      const group = waiting.slice(0, sizeMax);
      waiting = waiting.slice(sizeMax);
      startNext();
      try {
        const resultOf = await work(group.map(({ item }) => item));
        for (const one of group) settle(one, resultOf);
      } catch (error) {
        for (const { reject } of group) reject(error);
      }
    }
    running -= 1;
  }

  /** Starts a further group, if there are items that no group takes. */
  function startNext(): void {
    if (waiting.length === 0 || isGathering || running === groupsMax) return;
    running += 1;
    void run();
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
      startNext();
    });
}

/**
 * Creates or changes a watched address. The server decides which URLs are allowed, and its reason stands beside the field.
 */
import { useRef, useState } from 'preact/hooks';
import { ApiError, call, randomName } from '../api/client.ts';
import type { WatchedAddress } from '../api/types.ts';
import { Dialog, DialogButtons } from '../parts/dialog.tsx';
import { Check, TextField } from '../parts/fields.tsx';
import { Problem } from '../parts/problem.tsx';
import { texts } from '../texts.ts';

type Props = { record?: WatchedAddress; onClose(): void; onSaved(record: WatchedAddress): void };

export function AddressDialog({ record: given, onClose, onSaved }: Props) {
  /** As the fields were filled, so that a change from elsewhere meanwhile is not undone. */
  const [record] = useState(given);
  const [address, setAddress] = useState(record?.address ?? '');
  const [url, setUrl] = useState(record?.webhook_url ?? '');
  const [coin, setCoin] = useState(record?.watch_coin ?? true);
  const [token, setToken] = useState(record?.watch_token ?? true);
  const [error, setError] = useState<ApiError | undefined>(undefined);
  const [isSaving, setSaving] = useState(false);
  /** The same for a request that is repeated because its answer was lost. */
  const sent = useRef({ key: '', text: '' });
  const keyOf = (body: object) => {
    const text = JSON.stringify(body);
    if (sent.current.text !== text) sent.current = { key: randomName(), text };
    return sent.current.key;
  };
  const problemOf = (path: string) => {
    const problem = error?.problems.find((one) => one.path.startsWith(path));
    return problem && texts.errors.field(problem.message);
  };
  const isPlaced = error?.problems.some(({ path }) => /^\/(address|webhook_url)/.test(path)) ?? false;

  async function save(): Promise<void> {
    setSaving(true);
    setError(undefined);
    const body = {
      address: normalize(address),
      webhook_url: url.trim(),
      watch_coin: coin,
      watch_token: token,
    };
    try {
      const saved =
        record === undefined
          ? await call('POST /api/notifications/watched-addresses', {
              body,
              headers: { 'idempotency-key': keyOf(body) },
            })
          : await call('PATCH /api/notifications/watched-addresses/{id}', {
              path: { id: record.id },
              body: changesOf(record, body),
            });
      onClose();
      onSaved(saved);
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setError(failure);
      setSaving(false);
    }
  }

  return (
    <Dialog
      title={record === undefined ? texts.addresses.create : texts.addresses.edit}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      <TextField
        label={texts.addresses.address}
        value={address}
        onInput={(text) => {
          setAddress(text);
          setError(undefined);
        }}
        placeholder="0x…"
        isMono
        isRequired
        problem={problemOf('/address')}
      />
      <TextField
        label={texts.addresses.url}
        value={url}
        onInput={(text) => {
          setUrl(text);
          setError(undefined);
        }}
        placeholder="https://hooks.example.com/deposits"
        note={texts.addresses.urlNote}
        isRequired
        problem={problemOf('/webhook_url')}
      />
      <div class="fields is-pair">
        <Check label={texts.addresses.coin} note={texts.addresses.coinNote} value={coin} onChange={setCoin} />
        <Check
          label={texts.addresses.token}
          note={texts.addresses.tokenNote}
          value={token}
          onChange={setToken}
        />
      </div>
      <Problem text={isPlaced ? undefined : error?.whole} />
      <DialogButtons
        submit={record === undefined ? texts.addresses.watch : texts.save}
        onClose={onClose}
        isDisabled={isSaving}
      />
    </Dialog>
  );
}

/** What else was changed in another tab stays. */
const changesOf = <B extends Partial<WatchedAddress>>(record: WatchedAddress, body: B): Partial<B> =>
  Object.fromEntries(
    Object.entries(body).filter(([name, value]) => value !== record[name as keyof WatchedAddress]),
  ) as Partial<B>;

/** An address may be pasted without its prefix. */
function normalize(text: string): string {
  const trimmed = text.trim();
  return /^[0-9a-fA-F]{40}$/.test(trimmed) ? `0x${trimmed}` : trimmed;
}

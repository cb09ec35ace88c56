/**
 * The filters of the deliveries: one chip for each that is set, and a dialog to set them.
 */
import { useState } from 'preact/hooks';
import { useStop } from '../api/attempt.ts';
import { assetOf, chain } from '../api/chain.ts';
import { ApiError, call } from '../api/client.ts';
import {
  type DeliveryFilter,
  type FilterName,
  filterFrom,
  filterNames,
  originOf,
  queryOf,
} from '../api/filter.ts';
import { formatAmount, parseAmount } from '../format/amount.ts';
import { hostOf, shortAddress } from '../format/short.ts';
import { formatExact } from '../format/time.ts';
import { Dialog, DialogButtons } from '../parts/dialog.tsx';
import { Icon } from '../parts/icon.tsx';
import { usePageQuery } from '../parts/page.tsx';
import { Problem } from '../parts/problem.tsx';
import { zone } from '../state/preferences.ts';
import { useShortcut } from '../state/shortcuts.ts';
import { texts } from '../texts.ts';

const STATUSES = ['waiting', 'retrying', 'failing', 'held', 'delivered', 'orphaned', 'cancelled'] as const;
const OUTCOMES = ['timeout', 'connect', 'dns', 'tls', 'network', 'refused'] as const;
/** Offered as chips while they are not set. The others are in the dialog. */
const OFFERED: readonly FilterName[] = ['status', 'address', 'token', 'code'];

export function FilterChips({ filter }: { filter: DeliveryFilter }) {
  const { hrefWith, change } = usePageQuery();
  const [focus, setFocus] = useState<FilterName | undefined>(undefined);
  useShortcut('f', () => setFocus('status'));
  const set = Object.entries(filter) as [FilterName, string][];
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields
    <div class="chips" role="group" aria-label={texts.filters.label}>
      {set.map(([name, value]) => (
        <a
          key={name}
          class="chip is-set"
          href={hrefWith({ [name]: undefined, cursor: undefined })}
          title={valueText(name, value, filter)}
          aria-label={texts.filters.remove(texts.filters.names[name], valueText(name, value, filter))}
        >
          {texts.filters.names[name]} <b>{valueText(name, value, filter)}</b>
          <Icon name="close" />
        </a>
      ))}
      {OFFERED.filter((name) => filter[name] === undefined).map((name) => (
        <button key={name} type="button" class="chip" onClick={() => setFocus(name)}>
          <Icon name="plus" />
          {texts.filters.names[name]}
        </button>
      ))}
      <button type="button" class="chip" onClick={() => setFocus('from')}>
        <Icon name="plus" />
        {texts.filters.more}
      </button>
      {focus !== undefined && (
        <FilterDialog
          filter={filter}
          focus={focus}
          onClose={() => setFocus(undefined)}
          onApply={(changes) => {
            setFocus(undefined);
            change({ ...changes, cursor: undefined });
          }}
        />
      )}
    </div>
  );
}

/** The value of a filter as people read it. */
function valueText(name: FilterName, value: string, { token }: DeliveryFilter): string {
  switch (name) {
    case 'status':
      return texts.states[value as keyof typeof texts.states] ?? value;
    case 'type':
      return texts.filters.types[value as 'COIN_TRANSFER'] ?? value;
    case 'direction':
      return texts.filters.directions[value as 'in'] ?? value;
    case 'token':
      return assetName(value);
    case 'min_amount':
    case 'max_amount': {
      const { decimals, symbol, isKnown } = assetOf(assetFor(token));
      return token !== undefined && isKnown
        ? `${formatAmount(value, decimals)} ${symbol}`
        : `${formatAmount(value, 0)} ${texts.units}`;
    }
    case 'address':
    case 'watched_address_id':
    case 'hash':
      return shortAddress(value);
    case 'origin':
      return hostOf(value);
    case 'from':
    case 'until':
      return Number.isNaN(Date.parse(value)) ? value : formatExact(Date.parse(value), zone.value);
    case 'code':
      return /^\d+$/.test(value) ? value : texts.shortOutcome(value);
    case 'from_block':
    case 'to_block':
      return `#${formatAmount(value, 0)}`;
  }
}

const assetFor = (token: string | undefined): string =>
  token === 'native' ? (chain.state.value.data?.native_symbol ?? '') : (token ?? '');

function assetName(token: string): string {
  const { symbol, isKnown } = assetOf(assetFor(token));
  return isKnown ? symbol : shortAddress(token);
}

/** The unit in which amounts are typed. */
function amountUnit(token: string | undefined): string {
  if (token === undefined || token === '') return texts.filters.smallestUnit;
  const { symbol, isKnown } = assetOf(assetFor(token));
  return isKnown ? symbol : texts.filters.smallestUnit;
}

const amountHint = (token: string | undefined): string =>
  token === undefined || token === '' ? texts.filters.unitHint : '';

function FilterDialog({
  filter,
  focus,
  onClose,
  onApply,
}: {
  filter: DeliveryFilter;
  focus: FilterName;
  onClose(): void;
  onApply(changes: Record<FilterName, string | undefined>): void;
}) {
  const [first] = useState(() => asTyped(filter));
  const [draft, setDraft] = useState<Record<string, string>>({ ...filter, ...first });
  const [problem, setProblem] = useState<Refusal | undefined>(undefined);
  const [isBusy, setBusy] = useState(false);
  const stopped = useStop();
  const put = (name: FilterName) => (value: string) => {
    setDraft((present) => ({ ...present, [name]: value.trim() }));
    if (problem?.name === name) setProblem(undefined);
  };
  const field = (name: FilterName) => ({
    ...{ name, value: draft[name] ?? '', isFirst: name === focus, onInput: put(name) },
    problem: problem?.name === name ? problem.message : undefined,
  });
  const tokens = chain.state.value.data?.tokens ?? [];
  const apply = async () => {
    const checked = toFilter(draft, { filter, typed: first });
    if (!('problem' in checked)) setBusy(true);
    const found = 'problem' in checked ? checked.problem : await refusalOf(checked.filter);
    if (stopped.current) return undefined;
    setBusy(false);
    if (found === undefined && 'filter' in checked) return onApply(checked.filter);
    setProblem(found);
    // On a small screen it may be far above.
    return document.getElementById(`filter-${found?.name}`)?.focus();
  };
  return (
    <Dialog title={texts.filters.title} isWide onClose={onClose} onSubmit={() => void apply()}>
      <div class="fields is-pair">
        <Select {...field('status')} options={STATUSES.map((value) => [value, texts.states[value]])} />
        <Select
          {...field('type')}
          options={(['COIN_TRANSFER', 'TOKEN_TRANSFER'] as const).map((value) => [
            value,
            texts.filters.types[value],
          ])}
        />
        <Select
          {...field('token')}
          options={[
            ['native', chain.state.value.data?.native_symbol ?? texts.filters.native],
            ...tokens.map(({ address, symbol }): [string, string] => [
              address,
              `${symbol} ${shortAddress(address)}`,
            ]),
          ]}
        />
        <Text {...field('code')} hint={texts.filters.codeHint} list={OUTCOMES} />
        <Text {...field('min_amount')} unit={amountUnit(draft.token)} hint={amountHint(draft.token)} />
        <Text {...field('max_amount')} unit={amountUnit(draft.token)} hint={amountHint(draft.token)} />
        <Text {...field('address')} hint="0x…" />
        <Text {...field('hash')} hint="0x…" />
        <Text {...field('origin')} hint="https://hooks.example.com" />
        <Text {...field('watched_address_id')} />
        <Text {...field('from')} hint={texts.zones[zone.value]} type="datetime-local" />
        <Text {...field('until')} type="datetime-local" />
        <Text {...field('from_block')} />
        <Text {...field('to_block')} />
        <Select
          {...field('direction')}
          options={(['in', 'out'] as const).map((value) => [value, texts.filters.directions[value]])}
        />
      </div>
      <DialogButtons
        problem={problem !== undefined && problem.name === undefined ? problem.message : undefined}
        submit={texts.filters.apply}
        onClose={onClose}
        isDisabled={isBusy}
      />
    </Dialog>
  );
}

/** Without a name it is of no single field. */
type Refusal = { name: FilterName | undefined; message: string };

/** Why the server refuses the filter. Any other failure is shown by the list. */
async function refusalOf(filter: Record<FilterName, string | undefined>): Promise<Refusal | undefined> {
  try {
    await call('GET /api/notifications/log/count', { query: queryOf(filterFrom(filter)) });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status !== 400) return undefined;
    const [first] = error.problems;
    const name = filterNames.find((one) => first?.path === `/${one}`);
    return name === undefined || first === undefined
      ? { name: undefined, message: error.whole }
      : { name, message: texts.errors.field(first.message) };
  }
  return undefined;
}

/** Amounts in whole units and times in the visitor's zone, as they are typed. */
function asTyped(filter: DeliveryFilter): Record<string, string> {
  const { decimals } = assetOf(assetFor(filter.token));
  const scale = filter.token === undefined ? 0 : (decimals ?? 0);
  const typed: Record<string, string> = {};
  for (const name of ['min_amount', 'max_amount'] as const)
    if (filter[name] !== undefined) typed[name] = formatAmount(filter[name], scale).replaceAll(',', '');
  for (const name of ['from', 'until'] as const)
    if (filter[name] !== undefined && !Number.isNaN(Date.parse(filter[name])))
      typed[name] = toInput(filter[name]);
  return typed;
}

function toFilter(
  draft: Record<string, string>,
  shown: { filter: DeliveryFilter; typed: Record<string, string> },
): { filter: Record<FilterName, string | undefined> } | { problem: Refusal } {
  const filter = { ...draft } as Record<FilterName, string | undefined>;
  const { decimals } = assetOf(assetFor(draft.token));
  for (const name of ['min_amount', 'max_amount'] as const) {
    const typed = draft[name];
    if (typed === undefined || typed === '') continue;
    const units = parseAmount(typed, draft.token === undefined || draft.token === '' ? 0 : (decimals ?? 0));
    if (units === undefined) return { problem: { name, message: texts.filters.badAmount } };
    filter[name] = units;
  }
  for (const name of ['from', 'until'] as const) {
    const typed = draft[name];
    if (typed === undefined || typed === '') continue;
    // The hour that a clock shows twice doesn't say which of the two it is.
    const isSame = typed === shown.typed[name];
    const date = new Date(isSame ? (shown.filter[name] ?? '') : zone.value === 'utc' ? `${typed}Z` : typed);
    if (Number.isNaN(date.getTime())) return { problem: { name, message: texts.filters.badTime } };
    filter[name] = date.toISOString();
  }
  if (draft.origin !== undefined) filter.origin = toOrigin(draft.origin);
  // As pages write it.
  for (const name of ['from_block', 'to_block'] as const) filter[name] = draft[name]?.replace(/^#/, '');
  if (draft.address !== undefined && draft.address !== '' && !/^(0x)?[0-9a-fA-F]{40}$/.test(draft.address))
    return { problem: { name: 'address', message: texts.filters.badAddress } };
  if (draft.hash !== undefined && draft.hash !== '' && !/^(0x)?[0-9a-fA-F]{64}$/.test(draft.hash))
    return { problem: { name: 'hash', message: texts.filters.badHash } };
  return { filter };
}

/** An instant as a `datetime-local` field takes it. */
function toInput(iso: string): string {
  const date = new Date(iso);
  const shifted = zone.value === 'utc' ? date : new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted
    .toISOString()
    .slice(0, 'YYYY-MM-DDTHH:MM:SS.sss'.length)
    .replace(/(:00)?\.000$/, '');
}

type FieldProps = {
  name: FilterName;
  value: string;
  isFirst: boolean;
  problem: string | undefined;
  onInput(value: string): void;
};

function Select({
  name,
  value,
  isFirst,
  problem,
  onInput,
  options,
}: FieldProps & { options: readonly (readonly [string, string])[] }) {
  return (
    <div class="field">
      <label for={`filter-${name}`}>{texts.filters.names[name]}</label>
      <select
        id={`filter-${name}`}
        class="input"
        value={value}
        autofocus={isFirst}
        onChange={(event) => onInput(event.currentTarget.value)}
      >
        <option value="">{texts.filters.any}</option>
        {options.map(([one, text]) => (
          <option key={one} value={one}>
            {text}
          </option>
        ))}
        {value !== '' && !options.some(([one]) => one === value) && <option value={value}>{value}</option>}
      </select>
      <Problem text={problem} />
    </div>
  );
}

function Text({
  name,
  value,
  isFirst,
  problem,
  onInput,
  hint = '',
  unit,
  type = 'text',
  list,
}: FieldProps & {
  hint?: string;
  unit?: string;
  type?: 'text' | 'datetime-local';
  list?: readonly string[];
}) {
  return (
    <div class="field">
      <label for={`filter-${name}`}>
        {texts.filters.names[name]}
        {unit !== undefined && `, ${unit}`}
      </label>
      <input
        id={`filter-${name}`}
        class="input"
        type={type}
        step={type === 'datetime-local' ? 'any' : undefined}
        value={value}
        placeholder={hint}
        autofocus={isFirst}
        autocomplete="off"
        spellcheck={false}
        list={list === undefined ? undefined : `list-${name}`}
        aria-invalid={problem !== undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {list !== undefined && (
        <datalist id={`list-${name}`}>
          {list.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      )}
      <Problem text={problem} />
    </div>
  );
}

/** The origin of a webhook URL, or of a receiver as lists write it, without https. Anything else is left to the service. */
function toOrigin(typed: string): string {
  const text = typed.trim();
  const url = text.includes('://') || !/[.:]/.test(text) ? text : `https://${text}`;
  return originOf(url) ?? typed;
}

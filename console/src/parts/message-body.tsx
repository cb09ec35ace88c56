/**
 * The exact text that is or will be POSTed, with its headers. Numbers are shown as they stand in the text, because 256-bit
 * amounts don't fit into JavaScript numbers.
 */
import type { ComponentChildren } from 'preact';
import { visible } from '../format/short.ts';
import { texts } from '../texts.ts';
import { Copy } from './values.tsx';

type Message = { body: string; headers: Record<string, string> };

export function MessageBody({ message }: { message: Message | null | undefined }) {
  if (message === null || message === undefined) return null;
  return (
    <>
      <h2 class="minor">
        {texts.delivery.body}
        <Copy text={message.body} label={texts.delivery.copyBody}>
          {texts.delivery.copyBody}
        </Copy>
      </h2>
      <JsonText text={visible(message.body)} />
      <details class="as-table">
        <summary>{texts.delivery.headers(Object.keys(message.headers).length)}</summary>
        <dl class="facts mono">
          {Object.entries(message.headers).map(([name, value]) => (
            <>
              <dt key={name}>{name}</dt>
              <dd>{visible(value)}</dd>
            </>
          ))}
        </dl>
      </details>
    </>
  );
}

/** JSON, with a line for each field. The tokens are those of the text. */
function JsonText({ text }: { text: string }) {
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]/g);
  if (tokens === null) return <pre>{text}</pre>;
  const pieces: ComponentChildren[] = [];
  let depth = 0;
  const newLine = () => `\n${'  '.repeat(depth)}`;
  tokens.forEach((token, index) => {
    if (token === '{' || token === '[') {
      depth += 1;
      pieces.push(token, tokens[index + 1] === '}' || tokens[index + 1] === ']' ? '' : newLine());
    } else if (token === '}' || token === ']') {
      depth -= 1;
      const isEmpty = tokens[index - 1] === '{' || tokens[index - 1] === '[';
      pieces.push(isEmpty ? '' : newLine(), token);
    } else if (token === ',') pieces.push(token, newLine());
    else if (token === ':') pieces.push(': ');
    else if (tokens[index + 1] === ':') pieces.push(<span class="name">{token}</span>);
    else if (/^[-\d]/.test(token)) pieces.push(<span class="number">{token}</span>);
    else pieces.push(token);
  });
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard
    <pre class="json" role="group" aria-label={texts.delivery.body} tabIndex={0}>
      {pieces}
    </pre>
  );
}

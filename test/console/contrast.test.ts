/**
 * The contrast of the console's colors, computed from its tokens.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const TOKENS = readFileSync(new URL('../../console/src/styles/tokens.css', import.meta.url), 'utf8');
const TEXT_MIN = 4.5;
const GRAPHICS_MIN = 3;

const grounds = ['bg', 'surface', 'sunken', 'hover'];
const pairs: { front: string; back: string; least: number }[] = [
  ...['text', 'text-2', 'text-3', 'accent', 'ok', 'warn', 'bad'].flatMap((front) =>
    grounds.map((back) => ({ front, back, least: TEXT_MIN })),
  ),
  ...['text', 'text-2', 'text-3', 'accent'].map((front) => ({ front, back: 'accent-soft', least: TEXT_MIN })),
  ...['ok', 'warn', 'bad'].flatMap((role) =>
    ['text', role].map((front) => ({ front, back: `${role}-soft`, least: TEXT_MIN })),
  ),
  ...['accent', 'accent-hover'].map((back) => ({ front: 'on-accent', back, least: TEXT_MIN })),
  ...['c-1', 'c-2', 'c-3', 'c-4', 'c-5', 'c-6', 'line-strong'].flatMap((front) =>
    ['bg', 'surface'].map((back) => ({ front, back, least: GRAPHICS_MIN })),
  ),
];

/** A token in the light and the dark theme. */
function colorsOf(name: string): [light: string, dark: string] {
  const [, light = '', dark = ''] =
    new RegExp(`--${name}: light-dark\\((#\\w{6}), (#\\w{6})\\)`).exec(TOKENS) ??
    assert.fail(`no token ${name}`);
  return [light, dark];
}

/** Relative luminance (WCAG 2.2). */
function luminance(color: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: string, other: string): number {
  const [dark = 0, light = 0] = [luminance(one), luminance(other)].toSorted((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

test('text has a contrast of 4.5 and graphics of 3, in both themes', () => {
  const poor = pairs.flatMap(({ front, back, least }) =>
    ['light', 'dark'].flatMap((theme, index) => {
      const value = contrast(colorsOf(front)[index] ?? '', colorsOf(back)[index] ?? '');
      return value >= least ? [] : [`${front} on ${back}, ${theme}: ${value.toFixed(2)}`];
    }),
  );
  assert.deepEqual(poor, []);
  assert.ok(pairs.length > 50);
});

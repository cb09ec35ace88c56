/**
 * The table of docs/reference/metrics.md, from the registered metrics.
 */
import { createMetrics } from '../../../src/core/metrics.ts';
import { code, markdownTable } from './table.ts';

export async function renderMetrics(): Promise<string> {
  const metrics = createMetrics('').registry.getMetricsAsArray();
  const own = metrics.filter(({ name }) => name.startsWith('chainbell_'));
  const rows = own.map((metric) => {
    const labels: unknown = Reflect.get(metric, 'labelNames');
    return [
      code(metric.name),
      metric.type,
      Array.isArray(labels) ? labels.map((label) => code(String(label))).join(', ') : '',
      metric.help,
    ];
  });
  return markdownTable(['Name', 'Type', 'Labels', 'Meaning'], rows);
}

// Hosts that join and send heartbeats through the real API, and do what they are told, without any training.
import { randomUUID } from "node:crypto";

const EVERY_MS = 300;

/** `gpus` by node: `{ gn6: [0, 1] }`. */
export async function hosts(url, joinToken, gpus) {
  const incarnation = randomUUID();
  const ask = async (path, token, body) => {
    const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
    const answer = await fetch(`${url}/api/v1/workers/${path}`, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
    });
    const { data, message } = await answer.json();
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${message}`);
    return data;
  };
  const workers = [];
  for (const [node, numbers] of Object.entries(gpus)) {
    const facts = {
      machineId: `e2e-${node}`,
      host: node,
      gpuType: "A100",
      gpuCount: numbers.length,
      emulated: true,
      cpuCores: 8,
      memoryGb: 32,
      versions: { torch: "2.9.0" },
    };
    const entries = numbers.map((number) => ({ id: `${node}-${number}`, gpu: number }));
    const joined = await ask("register", joinToken, { workers: entries, incarnation, facts });
    workers.push(...joined.workers.map((each) => ({ ...each, generation: -1, process: null })));
  }
  let sequence = 0;
  const beat = async () => {
    sequence++;
    const said = workers.map(({ id, token, generation, process }, index) => ({
      id,
      token,
      incarnation,
      sequence,
      generation,
      process,
      usage: {
        gpuUtilization: process?.state === "running" ? 80 + index : 0,
        gpuMemoryUsedMb: process?.state === "running" ? 30_000 + 512 * index : 450,
        gpuMemoryTotalMb: 81_920,
        cpuPercent: 12,
        memoryUsedMb: 2_048,
      },
    }));
    const { workers: wanted } = await ask("heartbeat", undefined, { waitSeconds: 0, workers: said });
    for (const { id, generation, order, stop, error } of wanted) {
      if (error) continue; // removed meanwhile
      const worker = workers.find((each) => each.id === id);
      worker.generation = generation;
      worker.process = obeyed(worker.process, order, stop);
    }
  };
  let over = false;
  const beating = (async () => {
    while (!over) {
      await beat();
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  })();
  beating.catch(() => undefined); // `stop` tells
  return {
    stop: async () => {
      over = true;
      await beating;
    },
  };
}

function obeyed(process, order, stop) {
  if (stop && process?.name === stop.name)
    return { ...process, state: "exited", exitCode: 0, endedAt: Date.now() / 1000, left: false };
  if (order && process?.name !== order.name)
    return { name: order.name, rank: order.rank, state: "running", pid: 4000 + order.rank, left: true };
  return process;
}

export const SIZES = ["gpuCount", "cpuCores", "memoryGb", "sharedMemoryGb", "diskGb"] as const;

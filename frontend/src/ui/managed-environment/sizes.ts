export const SIZE_FIELDS = ["gpuCount", "cpuCores", "memoryGb", "sharedMemoryGb", "diskGb"] as const;

from tests.goldens import write

write()

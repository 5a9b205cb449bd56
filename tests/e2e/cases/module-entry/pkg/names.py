WORD = "module ran"

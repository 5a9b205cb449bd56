answer = input("overwrite the results? [y/n] ")

from fermi.cli.main import main

main()

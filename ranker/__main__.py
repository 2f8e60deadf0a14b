from ranker.cli import main

main()

"""What is installed in environments, whoever made them: looked at from inside, compared, and levelled.

entering.py    a session with `fermi.inside` in an environment
looking.py     what one interpreter has, kept for a while; looked at by threads of the workers
installing.py  packages into environments, because somebody asked for it
showing.py     both, as the API tells them
"""

"""What is installed in environments, whoever made them: looked at from inside, compared, and levelled.

looks.py         what one interpreter has, kept for a while; looked at by threads of the workers
installation.py  packages into environments, because somebody asked for it
presenters.py    both, as the API tells them
"""

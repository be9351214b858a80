"""Many runs in a row: which cells a matrix has, what is there already, and running the rest."""

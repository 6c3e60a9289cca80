"""The extraction job: what is read, stored, resumed and refused."""

"""The paper's tables as data (one YAML file each), and what runs, judges and prints them."""

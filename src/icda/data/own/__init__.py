"""A user's own data: folders of images, CSV tables, Parquet files."""

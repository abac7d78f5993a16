"""The inputs of models as the code of 2019 keeps them: TFRecord files of `tf.train.Example`, and Parquet and TSV."""

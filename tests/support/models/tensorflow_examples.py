"""Files of examples by TensorFlow itself: `python -m tests.support.models.tensorflow_examples
write|read FILE`.

`write` writes those of the lines of JSON in standard input, and `read` prints a file's.
"""

import json
import sys


def write(path: str) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(path) as writer:
        for line in sys.stdin:
            features = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in json.loads(line).items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def read(path: str) -> None:
    """As run_msmarco.py of dl4marco-bert reads them: every feature is of variable length."""
    import tensorflow as tf

    for record in tf.data.TFRecordDataset(path):
        names = tf.train.Example.FromString(record.numpy()).features.feature.keys()
        wanted = {name: tf.io.VarLenFeature(tf.int64) for name in names}
        found = tf.io.parse_single_example(record, wanted)
        print(
            json.dumps(
                {
                    name: tf.sparse.to_dense(values).numpy().tolist()
                    for name, values in found.items()
                }
            )
        )


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])

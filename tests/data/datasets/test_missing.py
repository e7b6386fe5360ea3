"""A dataset that is not there names the files that are needed, where they were looked for, and who publishes them."""

import pytest

from icda.data import create_task
from icda.data.registry import DatasetNotFoundError

NEEDED = {
    "cad_imdb": ("cad/sentiment/combined/paired/train_paired.tsv", "text.tar.xz", "Kaushik"),
    "celeba": ("list_attr_celeba", "list_eval_partition", "img_align_celeba", "celeba_v1.0", "Hong Kong"),
    "celeba_64px": ("list_attr_celeba", "Hong Kong"),
    "celeba_10k_fold_1": ("celeba_10k_64px.npz", "Hong Kong"),
    **dict.fromkeys(("cifar10", "cifar10_lt_100", "cifar10_flip_20"), ("cifar-10-batches-py", "Toronto")),
    "cifar100": ("cifar-100-python", "Toronto"),
    "civil_comments": ("civilcomments_v1.0", "all_data_with_identities.csv", "WILDS", "CC0"),
    "imagenet_glt_clt": ("imagenet_sup_intra_lt_inter_lt.json", "Tang", "non-commercial"),
    "imagenet_lt": ("ImageNet_LT_train.txt", "OLTR"),
    **dict.fromkeys(("mnist", "cmnist"), ("train-images-idx3-ubyte", "LeCun")),
    "mscoco_glt_clt": ("annotation.json", "mscoco_glt_crop.py"),
    "tiny_imagenet_lt": ("tiny_imagenet_lt100.npz", "CS231n"),
    "tiny_imagenet_glt": ("tiny_imagenet_lt100.npz",),
    "waterbirds": ("waterbirds_resnet50.npz", "research use only"),
    "waterbirds_64px": ("waterbirds_64px.npz", "WILDS"),
    "waterbirds_images": ("waterbirds_v1.0", "waterbird_complete95", "metadata.csv", "WILDS"),
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_dataset_that_is_not_there_names_files_places_and_publisher(name, tmp_path):
    with pytest.raises(DatasetNotFoundError) as caught:
        create_task(name, root=tmp_path)
    assert all(word in str(caught.value) for word in (*NEEDED[name], str(tmp_path), "ICDA_DATA"))

"""The collections of the study of passage length: nfL6, WebAP and WikiPassageQA."""

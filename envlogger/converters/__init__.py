"""Conversions between Python values and the stored protocol buffers.

    StepData --- step_encoder: plans of earlier steps; codec if none matches -------> record
                                                                                        |
    StepData <-- step_decoder: templates of earlier records; codec if none matches -----+
                                                                                        |
    columns  <-- columns: the same templates, for many records at once -----------------+
       |
       +-- rlds_episode: rewards and discounts move to the actions that earned them --> RLDS episode

A record is a serialized proto `Data`. `codec` converts all supported values and is the reference
for the faster converters. `step_template` learns the layout of records from one record, and
`stored_types` has the table of dtypes and proto fields. `spec_codec` converts specs to plain values
for the metadata. `video_fields` decodes the packets of camera fields to frames.
"""

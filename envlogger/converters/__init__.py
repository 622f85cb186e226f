"""Conversions between Python values and the stored protocol buffers.

    StepData --- step_encoder: plans of earlier steps; codec if none fits ----------> record
                                                                                        |
    StepData <-- step_decoder: templates of earlier records; codec if none fits --------+
                                                                                        |
    columns  <-- columns: the same templates, for many records at once -----------------+
       |
       +-- rlds_episode: rewards and discounts move to the actions that earned them --> RLDS episode

A record is a serialized proto `Data`. `codec` converts all values that can be stored, and says what
the faster ways have to return. `step_template` learns the form of records from one of them, and
`stored_types` has the table of dtypes and proto fields. Beside the steps, `spec_codec` makes specs
plain values for the metadata. `video_fields` decodes the packets that stand in place of frames.
"""
